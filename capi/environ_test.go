//go:build linux && cgo

package capi

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

func TestEnvironmentOfCLibraries(t *testing.T) {
	const key = "GOVERBS_TEST_OF_CAPI"
	if err := Setenv(key, "ours"); err != nil || Getenv(key) != "ours" {
		t.Errorf("it is %q, %v", Getenv(key), err)
	}
	if v, ok := os.LookupEnv(key); ok {
		t.Errorf("Go sees %q", v)
	}
	if out, err := exec.Command("printenv", key).Output(); err == nil {
		t.Errorf("a child inherits %q", out)
	}
	t.Setenv(key, "all's")
	if v := Getenv(key); v != "all's" {
		t.Errorf("Go has set it and it is %q", v)
	}
	if err := Setenv(key, ""); err != nil || Getenv(key) != "" {
		t.Errorf("taken away it is %q, %v", Getenv(key), err)
	}
	if err := Setenv("a=b", "c"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a name that can't be: %v", err)
	}
}
