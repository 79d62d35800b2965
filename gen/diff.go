package main

import "errors"

func runDiff(args []string) error { return errors.ErrUnsupported }
