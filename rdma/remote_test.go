package rdma

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math"
	"strings"
	"testing"
)

var testRemote = Remote{Addr: 0x7f5c_0000_1000, Size: 4096, RKey: 0x12345678, Device: "mlx5_0"}

func TestRemoteGoldenBytes(t *testing.T) {
	golden := "52444d01" + "12345678" + "00007f5c00001000" + "0000000000001000" +
		"6d6c78355f30" + strings.Repeat("00", 58)
	data, err := testRemote.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(data); got != golden {
		t.Errorf("got  %s\nwant %s", got, golden)
	}
	var back Remote
	if err := back.UnmarshalBinary(data); err != nil || back != testRemote {
		t.Errorf("back: %+v, %v", back, err)
	}
	appended, err := testRemote.AppendBinary([]byte("before"))
	if err != nil || !bytes.Equal(appended, append([]byte("before"), data...)) {
		t.Errorf("AppendBinary: %x, %v", appended, err)
	}
}

func TestRemoteGoldenJSON(t *testing.T) {
	golden := `{"addr":"0x7f5c00001000","size":4096,"rkey":305419896,"device":"mlx5_0"}`
	data, err := json.Marshal(testRemote)
	if err != nil || string(data) != golden {
		t.Fatalf("got %s, %v\nwant %s", data, err, golden)
	}
	var back Remote
	if err := json.Unmarshal(data, &back); err != nil || back != testRemote {
		t.Errorf("back: %+v, %v", back, err)
	}
}

func TestRemoteRefusesWhatIsNotOne(t *testing.T) {
	good, err := testRemote.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	edit := func(f func(b []byte) []byte) string { return string(f(bytes.Clone(good))) }
	for name, tt := range map[string]struct{ data, want string }{
		"empty":         {"", "0 bytes, want 88"},
		"short":         {string(good[:87]), "87 bytes, want 88"},
		"long":          {string(good) + "\x00", "89 bytes, want 88"},
		"other kind":    {edit(func(b []byte) []byte { b[2] = 'E'; return b }), `it starts with "RDE", want "RDM"`},
		"later version": {edit(func(b []byte) []byte { b[3] = 2; return append(b, 1, 2, 3) }), "version 2, known is 1"},
		"beyond the address space": {edit(func(b []byte) []byte {
			copy(b[8:], bytes.Repeat([]byte{0xff}, 8))
			return b
		}), "4096 bytes at 0xffffffffffffffff end beyond the address space"},
		"unending name":   {edit(func(b []byte) []byte { copy(b[24:], bytes.Repeat([]byte{'x'}, 64)); return b }), "the device name has 64 bytes, allowed are 63"},
		"NUL in the name": {edit(func(b []byte) []byte { b[25] = 0; return b }), "has a NUL in it"},
		"odd name":        {edit(func(b []byte) []byte { b[25] = '\n'; return b }), "is not printable ASCII"},
	} {
		r := Remote{RKey: 1}
		err := r.UnmarshalBinary([]byte(tt.data))
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "rdma: remote: ") {
			t.Errorf("%s: error %v, want %q", name, err, tt.want)
		}
		if r != (Remote{RKey: 1}) {
			t.Errorf("%s: changed to %+v", name, r)
		}
	}
	for name, tt := range map[string]struct{ data, want string }{
		"no object":        {`17`, "cannot unmarshal number"},
		"no rkey":          {`{"addr":"0x0","size":1}`, "addr, size or rkey is missing"},
		"null size":        {`{"addr":"0x0","size":null,"rkey":1}`, "addr, size or rkey is missing"},
		"decimal addr":     {`{"addr":"17","size":1,"rkey":1}`, `"17" is not a hexadecimal number with 0x`},
		"number addr":      {`{"addr":17,"size":1,"rkey":1}`, "cannot unmarshal number"},
		"signed addr":      {`{"addr":"0x-1","size":1,"rkey":1}`, "is not a hexadecimal number"},
		"underscore":       {`{"addr":"0x1_0","size":1,"rkey":1}`, "is not a hexadecimal number"},
		"addr too large":   {`{"addr":"0x10000000000000000","size":1,"rkey":1}`, "of 64 bits"},
		"negative size":    {`{"addr":"0x0","size":-1,"rkey":1}`, "cannot unmarshal number -1"},
		"rkey too large":   {`{"addr":"0x0","size":1,"rkey":4294967296}`, "cannot unmarshal number 4294967296"},
		"beyond the space": {`{"addr":"0xffffffffffffffff","size":1,"rkey":1}`, "beyond the address space"},
		"odd name":         {`{"addr":"0x0","size":1,"rkey":1,"device":"mlx5 0"}`, "is not printable ASCII"},
	} {
		r := Remote{RKey: 1}
		err := json.Unmarshal([]byte(tt.data), &r)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("JSON %s: error %v, want %q", name, err, tt.want)
		}
		if r != (Remote{RKey: 1}) {
			t.Errorf("JSON %s: changed to %+v", name, r)
		}
	}
	for _, r := range []Remote{
		{Addr: math.MaxUint64, Size: 1},
		{Device: strings.Repeat("x", 64)},
		{Device: "mlx5\x00"},
	} {
		if b, err := r.AppendBinary([]byte{1}); err == nil || !bytes.Equal(b, []byte{1}) {
			t.Errorf("AppendBinary of %+v: %x, %v", r, b, err)
		}
		if _, err := json.Marshal(r); err == nil {
			t.Errorf("JSON of %+v: no error", r)
		}
	}
}

func FuzzRemoteBinary(f *testing.F) {
	good, err := testRemote.MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:40])
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Remote
		if r.UnmarshalBinary(data) != nil {
			return
		}
		back, err := r.MarshalBinary()
		if err != nil || !bytes.Equal(back, data) {
			t.Errorf("%x became %+v, and that %x, %v", data, r, back, err)
		}
		checkJSONRoundTrip(t, r)
	})
}

func FuzzRemoteJSON(f *testing.F) {
	f.Add([]byte(`{"addr":"0x7f5c00001000","size":4096,"rkey":305419896,"device":"mlx5_0"}`))
	f.Add([]byte(`{"addr":"0x0","size":0,"rkey":0}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Remote
		if json.Unmarshal(data, &r) == nil {
			checkJSONRoundTrip(t, r)
		}
	})
}

// checkJSONRoundTrip checks that a decoded value survives JSON.
func checkJSONRoundTrip[T comparable](t *testing.T, v T) {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("%+v: %v", v, err)
	}
	var back T
	if err := json.Unmarshal(data, &back); err != nil || back != v {
		t.Errorf("%+v became %s, and that %+v, %v", v, data, back, err)
	}
}
