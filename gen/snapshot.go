package main

import "errors"

func runSnapshot(args []string) error { return errors.ErrUnsupported }
