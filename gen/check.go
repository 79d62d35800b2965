package main

import "errors"

func runCheck(args []string) error { return errors.ErrUnsupported }
