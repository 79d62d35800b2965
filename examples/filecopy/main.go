package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"net"
	"os"
	"os/signal"
	"syscall"

	_ "github.com/goverbs/goverbs/backends/verbs"
)

const usage = `usage:
  filecopy serve [-listen ADDR] [-device NAME] -back COPY FILE
  filecopy get   [-device NAME] -from ADDR COPY
  filecopy demo  [-device NAME] [-size MiB]`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "filecopy:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("no command given\n" + usage)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprintln(os.Stderr, usage) }
	device := flags.String("device", "", "RDMA `device`; default: the first with an active port")
	switch args[0] {
	case "serve":
		addr := flags.String("listen", ":7471", "TCP `address` to introduce both sides")
		back := flags.String("back", "", "`file` for what comes back")
		if err := parse(flags, args[1:], 1, "back"); err != nil {
			return err
		}
		listener, err := net.Listen("tcp", *addr)
		if err != nil {
			return err
		}
		defer listener.Close()
		return serve(ctx, listener, *device, flags.Arg(0), *back)
	case "get":
		addr := flags.String("from", "", "`address` of the server")
		if err := parse(flags, args[1:], 1, "from"); err != nil {
			return err
		}
		r, err := get(ctx, *addr, *device, flags.Arg(0))
		if err != nil {
			return err
		}
		fmt.Println(r)
		return nil
	case "demo":
		size := flags.Int64("size", 64, "size of the file in `MiB`")
		if err := parse(flags, args[1:], 0); err != nil {
			return err
		}
		if most := int64(math.MaxInt64 >> 20); *size < 0 || *size > most {
			return fmt.Errorf("size is %d, allowed is 0 to %d MiB", *size, most)
		}
		return demo(ctx, *device, *size<<20)
	}
	return fmt.Errorf("unknown command %q\n%s", args[0], usage)
}

// parse parses flags, some of them required, and checks how many arguments
// are left.
func parse(flags *flag.FlagSet, args []string, want int, required ...string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	for _, name := range required {
		if flags.Lookup(name).Value.String() == "" {
			return fmt.Errorf("the flag -%s is missing\n%s", name, usage)
		}
	}
	if flags.NArg() != want {
		return fmt.Errorf("%d arguments, want %d\n%s", flags.NArg(), want, usage)
	}
	return nil
}
