package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// demo serves a file of random bytes in one process and gets it in another.
func demo(ctx context.Context, device string, size int64) error {
	dir, err := os.MkdirTemp("", "filecopy")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "file")
	if err := writeRandom(file, size); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	server := exec.CommandContext(ctx, self, "serve", "-device", device, "-listen", "127.0.0.1:0", "-back", filepath.Join(dir, "back"), file)
	server.Stderr = os.Stderr
	out, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		if failure := server.Wait(); failure != nil {
			err = failure
		}
		return fmt.Errorf("the server did not start: %w", err)
	}
	fmt.Print(line)
	_, addr, _ := strings.Cut(strings.TrimSpace(line), " at ")

	client := exec.CommandContext(ctx, self, "get", "-device", device, "-from", addr, filepath.Join(dir, "copy"))
	var last strings.Builder
	client.Stdout, client.Stderr = &last, os.Stderr
	if err := client.Run(); err != nil {
		cancel()
		server.Wait() // it must not outlive a client that failed
		return fmt.Errorf("client: %w", err)
	}
	if err := server.Wait(); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	fmt.Print(last.String())
	return nil
}

func writeRandom(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := io.CopyN(f, rand.Reader, size); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
