package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/goverbs/goverbs/rdma"
)

// report is what the client found out.
type report struct {
	device string
	link   rdma.LinkLayer
	bytes  int64 // in each direction
	took   time.Duration
}

// String returns the last line that a copy prints.
func (r report) String() string {
	return fmt.Sprintf("%s (%s): %d bytes read and written back, %s, sha256 ok", r.device, r.link, r.bytes, rate(2*r.bytes, r.took))
}

// get reads the file that the server at addr offers into path, and writes it
// back to the server.
func get(ctx context.Context, addr, device, path string) (_ report, err error) {
	out, err := newPendingFile(path)
	if err != nil {
		return report{}, err
	}
	defer out.discard()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return report{}, err
	}
	defer conn.Close()
	dev, err := openDevice(device)
	if err != nil {
		return report{}, err
	}
	defer dev.Close()
	l, err := newLink(ctx, dev, rdma.AccessLocalWrite, conn)
	if err != nil {
		return report{}, err
	}
	defer l.close()
	ctx, done := l.untilGone(ctx)
	defer done(&err)

	var file offer
	if err := l.ctl.receive(&file); err != nil {
		return report{}, err
	}
	if file.Size < 0 || file.Window.Size < windowSize {
		return report{}, fmt.Errorf("the server offers %d bytes through a window of %d, want at least 0 through %d", file.Size, file.Window.Size, windowSize)
	}
	start := time.Now()
	read, err := l.readChunks(ctx, out, file)
	if err := l.compare(read, err); err != nil {
		return report{}, err
	}
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		return report{}, err
	}
	wrote, err := l.writeChunks(ctx, out, file)
	if err := l.compare(wrote, err); err != nil {
		return report{}, err
	}
	took := time.Since(start)
	if err := out.commit(); err != nil {
		return report{}, err
	}
	own, err := l.qp.Endpoint()
	if err != nil {
		return report{}, err
	}
	return report{dev.Name(), own.LinkLayer, file.Size, took}, nil
}

// readChunks reads the server's file by RDMA, as many chunks at a time as
// there are slots, and writes it to out. It returns the sum of it.
func (l *link) readChunks(ctx context.Context, out io.Writer, file offer) (string, error) {
	sum := sha256.New()
	bar := newProgress("read", file.Size)
	total := chunks(file.Size)
	var reads [slots]*rdma.Op
	for k := int64(0); k < total+slots; k++ {
		if old := k - slots; old >= 0 && old < total { // the slot's last use ends first
			view, err := l.slot(old, chunkLen(file.Size, old))
			if err != nil {
				return "", err
			}
			if err := patiently(ctx, reads[old%slots].Wait); err != nil {
				return "", err
			}
			if err := l.signal(ctx, old); err != nil {
				return "", err
			}
			err = view.Do(func(b []byte) error {
				sum.Write(b)
				_, err := out.Write(b)
				return err
			})
			if err != nil {
				return "", err
			}
			bar.add(int(view.Size()))
		}
		if k >= total {
			continue
		}
		if err := l.awaitSignal(ctx, k); err != nil { // the server has filled the slot
			return "", err
		}
		view, remote, err := l.slotPair(file, k)
		if err != nil {
			return "", err
		}
		if reads[k%slots], err = l.qp.StartRead(ctx, view, remote); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// writeChunks writes in to the server by RDMA. Each write signals its end to
// the server by its immediate data. It returns the sum of in.
func (l *link) writeChunks(ctx context.Context, in io.Reader, file offer) (string, error) {
	sum := sha256.New()
	bar := newProgress("write", file.Size)
	total := chunks(file.Size)
	for k := range total {
		if k >= slots { // the server has taken what was in its slot
			if err := l.awaitSignal(ctx, k-slots); err != nil {
				return "", err
			}
		}
		view, remote, err := l.slotPair(file, k)
		if err != nil {
			return "", err
		}
		err = view.Do(func(b []byte) error {
			_, err := io.ReadFull(in, b)
			sum.Write(b)
			return err
		})
		if err != nil {
			return "", err
		}
		if _, err := l.qp.StartWriteImm(ctx, view, remote, uint32(k)); err != nil {
			return "", err
		}
		bar.add(int(view.Size()))
	}
	for k := max(total-slots, 0); k < total; k++ {
		if err := l.awaitSignal(ctx, k); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// slotPair returns this side's slot of a chunk, and the server's.
func (l *link) slotPair(file offer, chunk int64) (rdma.View, rdma.Remote, error) {
	n := chunkLen(file.Size, chunk)
	view, err := l.slot(chunk, n)
	if err != nil {
		return rdma.View{}, rdma.Remote{}, err
	}
	remote, err := file.Window.Slice(uint64(chunk%slots)*chunkSize, n)
	return view, remote, err
}
