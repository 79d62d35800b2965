package rdma

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
)

var testEndpoint = Endpoint{
	Type: SRD, QPN: 0x112233, PSN: 0xa1b2c3, QKey: 0x80010000,
	LID: 0x1234, LinkLayer: LinkLayerInfiniBand,
	GID: GID{0xfe, 0x80, 15: 0x01}, GIDType: GIDTypeIB,
	MTU: MTU4096, MaxReadDepth: 16, MaxReadDepthTarget: 255,
}

func TestEndpointGoldenBytes(t *testing.T) {
	golden := "52444501" + "00112233" + "00a1b2c3" + "80010000" + "1234" + "01" + "01" +
		"fe800000000000000000000000000001" + "05" + "10" + "ff" + "03"
	data, err := testEndpoint.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(data); got != golden {
		t.Errorf("got  %s\nwant %s", got, golden)
	}
	var back Endpoint
	if err := back.UnmarshalBinary(data); err != nil || back != testEndpoint {
		t.Errorf("back: %+v, %v", back, err)
	}
	checkJSONRoundTrip(t, testEndpoint)
}

func TestEndpointAcceptsEveryKindOfNetwork(t *testing.T) {
	roce := GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}
	for name, e := range map[string]Endpoint{
		"InfiniBand by LID": {QPN: 2, LID: 1, LinkLayer: LinkLayerInfiniBand, MTU: MTU256},
		"InfiniBand by GID": {QPN: 2, GID: GID{0xfe, 0x80, 15: 1}, GIDType: GIDTypeIB, LinkLayer: LinkLayerInfiniBand, MTU: MTU256},
		"RoCE v1":           {QPN: max24Bits, PSN: max24Bits, GID: roce, GIDType: GIDTypeRoCEv1, LinkLayer: LinkLayerEthernet, MTU: MTU1024},
		"RoCE v2":           {QPN: 17, GID: roce, GIDType: GIDTypeRoCEv2, LinkLayer: LinkLayerEthernet, MTU: MTU1024},
		"EFA":               {QPN: 0, QKey: 1, GID: GID{0xfe, 0x80, 15: 1}, GIDType: GIDTypeIB, MTU: MTU4096},
	} {
		data, err := e.MarshalBinary()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var back Endpoint
		if err := back.UnmarshalBinary(data); err != nil || back != e {
			t.Errorf("%s: back: %+v, %v", name, back, err)
		}
		checkJSONRoundTrip(t, e)
	}
}

func TestEndpointNamesTheFieldThatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		edit func(*Endpoint)
		want string
	}{
		{func(e *Endpoint) { e.Type = 6 }, "type is 6, allowed is 0 to 5"},
		{func(e *Endpoint) { e.QPN = 1 << 24 }, "QPN is 16777216, allowed is 2 to 16777215"},
		{func(e *Endpoint) { e.QPN = 1 }, "QPN is 1, allowed is 2 to 16777215"},
		{func(e *Endpoint) { e.PSN = 1 << 24 }, "PSN is 16777216, allowed is 0 to 16777215"},
		{func(e *Endpoint) { e.LID = 0xc000 }, "LID is 49152, allowed is 0 to 49151"},
		{func(e *Endpoint) { e.LinkLayer = 3 }, "link layer is 3, allowed is 0 to 2"},
		{func(e *Endpoint) { e.MTU = 1500 }, "MTU is 1500, allowed is 256, 512, 1024, 2048 or 4096"},
		{func(e *Endpoint) { e.MaxReadDepth = 256 }, "MaxReadDepth is 256, allowed is 0 to 255"},
		{func(e *Endpoint) { e.MaxReadDepth = -1 }, "MaxReadDepth is -1, allowed is 0 to 255"},
		{func(e *Endpoint) { e.MaxReadDepthTarget = 256 }, "MaxReadDepthTarget is 256, allowed is 0 to 255"},
		{func(e *Endpoint) { e.MaxReadDepthTarget = -1 }, "MaxReadDepthTarget is -1, allowed is 0 to 255"},
		{func(e *Endpoint) { e.GIDType = 4 }, "GID type is 4, allowed is 1 to 3"},
		{func(e *Endpoint) { e.GIDType = 0 }, "GID type is 0, allowed is 1 to 3"},
		{func(e *Endpoint) { e.GID = GID{} }, "GID type is IB, allowed is none"},
		{func(e *Endpoint) { e.GID[0] = 0xff }, "GID is ff80::1, allowed is a unicast address"},
		{func(e *Endpoint) { e.GID, e.GIDType, e.LID = GID{}, 0, 0 }, "LID is 0, allowed is 1 to 49151"},
		{func(e *Endpoint) { e.GID, e.GIDType, e.LinkLayer = GID{}, 0, LinkLayerEthernet }, "GID is ::, allowed is an address"},
	} {
		e := testEndpoint
		tt.edit(&e)
		if b, err := e.AppendBinary([]byte{1}); err == nil || !strings.Contains(err.Error(), tt.want) || !bytes.Equal(b, []byte{1}) {
			t.Errorf("AppendBinary: %x, %v, want %q", b, err, tt.want)
		}
		if _, err := json.Marshal(e); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("JSON: %v, want %q", err, tt.want)
		}
	}
}

func TestEndpointRefusesWhatIsNotOne(t *testing.T) {
	good, err := testEndpoint.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	with := func(i int, v ...byte) []byte { b := bytes.Clone(good); copy(b[i:], v); return b }
	for name, tt := range map[string]struct {
		data []byte
		want string
	}{
		"empty":         {nil, "0 bytes, want 40"},
		"short":         {good[:39], "39 bytes, want 40"},
		"other kind":    {with(0, 'H', 'T', 'T', 'P'), `it starts with "HTT", want "RDE"`},
		"later version": {with(3, 9)[:20], "version 9, known is 1"},
		"QPN":           {with(4, 1), "QPN is 17900083"},
		"PSN":           {with(8, 1), "PSN is 27374275"},
		"LID":           {with(16, 0xff), "LID is 65332"},
		"link layer":    {with(18, 3), "link layer is 3"},
		"GID type":      {with(19, 4), "GID type is 4"},
		"MTU 0":         {with(36, 0), "MTU has code 0, allowed is 1 to 5"},
		"MTU 6":         {with(36, 6), "MTU has code 6, allowed is 1 to 5"},
		"type":          {with(39, 6), "type is 6, allowed is 0 to 5"},
	} {
		e := Endpoint{QPN: 7}
		if err := e.UnmarshalBinary(tt.data); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", name, err, tt.want)
		}
		if e != (Endpoint{QPN: 7}) {
			t.Errorf("%s: changed to %+v", name, e)
		}
	}
	text, err := json.Marshal(testEndpoint)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ old, new, want string }{
		{`"version":1`, `"version":2`, "version 2, known is 1"},
		{`"version":1,`, ``, "version 0, known is 1"},
		{`"qpn":1122867`, `"qpn":null`, "qpn or psn is missing"},
		{`"qpn":1122867`, `"qpn":-1`, "cannot unmarshal number -1"},
		{`"linkLayer":"InfiniBand"`, `"linkLayer":"Ether"`, `the link layer "Ether" is not known`},
		{`"linkLayer":"InfiniBand",`, ``, `the link layer "" is not known`},
		{`"gidType":"IB"`, `"gidType":"IP"`, `the GID type "IP" is not known`},
		{`"gid":"fe80::1"`, `"gid":"fe80::1::"`, "fe80::1::"},
		{`"mtu":4096`, `"mtu":4097`, "MTU is 4097"},
	} {
		edited := strings.Replace(string(text), tt.old, tt.new, 1)
		if edited == string(text) {
			t.Fatalf("%s has no %s", text, tt.old)
		}
		e := Endpoint{QPN: 7}
		if err := json.Unmarshal([]byte(edited), &e); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.new, err, tt.want)
		}
		if e != (Endpoint{QPN: 7}) {
			t.Errorf("%s: changed to %+v", tt.new, e)
		}
	}
}

func FuzzEndpointBinary(f *testing.F) {
	good, err := testEndpoint.MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:20])
	f.Fuzz(func(t *testing.T, data []byte) {
		var e Endpoint
		if e.UnmarshalBinary(data) != nil {
			return
		}
		back, err := e.MarshalBinary()
		if err != nil || !bytes.Equal(back, data) {
			t.Errorf("%x became %+v, and that %x, %v", data, e, back, err)
		}
		checkJSONRoundTrip(t, e)
	})
}

func FuzzEndpointJSON(f *testing.F) {
	text, err := json.Marshal(testEndpoint)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, data []byte) {
		var e Endpoint
		if json.Unmarshal(data, &e) == nil {
			checkJSONRoundTrip(t, e)
		}
	})
}
