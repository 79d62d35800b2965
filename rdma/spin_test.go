package rdma_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
)

func TestSpinFindsCompletionsAndEnds(t *testing.T) {
	a, b, cq, _ := batchPair(t, nil)
	wcs := make([]rdma.WC, 4)
	if n, err := cq.Spin(wcs, time.Millisecond); n != 0 || err != nil {
		t.Errorf("without requests: %d completions, %v", n, err)
	}
	if n, err := cq.Spin(nil, time.Hour); n != 0 || err != nil {
		t.Errorf("without room: %d completions, %v", n, err)
	}
	batch := a.qp.Batch()
	for token := range uint64(6) {
		if _, err := batch.Write(a.mem.View(), b.mem.Remote(), token).Post(); err != nil {
			t.Fatal(err)
		}
	}
	for token := uint64(0); token < 6; {
		n, err := cq.Spin(wcs, time.Minute)
		if err != nil || n == 0 {
			t.Fatalf("%d completions, %v", n, err)
		}
		for _, wc := range wcs[:n] {
			if wc.Token != token || wc.Err() != nil {
				t.Errorf("completion of %d, %v, want %d", wc.Token, wc.Err(), token)
			}
			token++
		}
	}
}

func TestSpinEndsWhenTheQueueIsClosed(t *testing.T) {
	_, _, cq, _ := batchPair(t, nil)
	ended := make(chan error)
	go func() {
		_, err := cq.Spin(make([]rdma.WC, 1), time.Hour)
		ended <- err
	}()
	check(t, cq.Close())
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Errorf("spinning on a closed queue: %v, want os.ErrClosed", err)
	}
}
