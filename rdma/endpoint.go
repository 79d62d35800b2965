package rdma

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// Endpoint is what a peer needs to know about a queue pair to connect to it.
// It travels as JSON or in the binary form of [Endpoint.AppendBinary], by
// [Exchange] or any other way. Decoding checks every number, so that what came
// from a peer can be given to [QP.Connect].
type Endpoint struct {
	Type QPType // of the queue pair; 0 if it is not said
	QPN  uint32 // number of the queue pair, 24 bits
	PSN  uint32 // first packet sequence number it sends, 24 bits
	QKey uint32 // that those who send to it must know; 0 for connected types

	LID     uint16  // address in an InfiniBand subnet; 0 on RoCE
	GID     GID     // global address; may be zero within an InfiniBand subnet
	GIDType GIDType // protocol of GID; zero if GID is

	LinkLayer          LinkLayer
	MTU                MTU // largest packet payload of its path
	MaxReadDepth       int // reads and atomics it may have in flight, up to 255
	MaxReadDepthTarget int // reads and atomics it serves at a time, up to 255
}

// The limits of the fields, all from the InfiniBand specification.
const (
	max24Bits     = 1<<24 - 1
	maxUnicastLID = 0xbfff
	maxReadDepth  = 255
	firstQPN      = 2 // 0 and 1 are the queue pairs of the subnet's management
)

// validate checks what the types don't, and names the field that is wrong.
func (e Endpoint) validate() error {
	bad := func(field string, value any, allowed string) error {
		return decodeError("endpoint", fmt.Errorf("%s is %v, allowed is %s", field, value, allowed))
	}
	managed := e.LinkLayer != LinkLayerUnspecified // by InfiniBand's rules
	switch {
	case e.Type > DCTarget:
		return bad("type", uint8(e.Type), fmt.Sprintf("0 to %d", DCTarget))
	case e.QPN > max24Bits || managed && e.QPN < firstQPN:
		return bad("QPN", e.QPN, fmt.Sprintf("%d to %d", firstQPN, max24Bits))
	case e.PSN > max24Bits:
		return bad("PSN", e.PSN, fmt.Sprintf("0 to %d", max24Bits))
	case e.LID > maxUnicastLID:
		return bad("LID", e.LID, fmt.Sprintf("0 to %d", maxUnicastLID))
	case e.LinkLayer > LinkLayerEthernet:
		return bad("link layer", uint8(e.LinkLayer), "0 to 2")
	case mtuCode(e.MTU) == 0:
		return bad("MTU", int(e.MTU), "256, 512, 1024, 2048 or 4096")
	case e.MaxReadDepth < 0 || e.MaxReadDepth > maxReadDepth:
		return bad("MaxReadDepth", e.MaxReadDepth, fmt.Sprintf("0 to %d", maxReadDepth))
	case e.MaxReadDepthTarget < 0 || e.MaxReadDepthTarget > maxReadDepth:
		return bad("MaxReadDepthTarget", e.MaxReadDepthTarget, fmt.Sprintf("0 to %d", maxReadDepth))
	case e.GID.IsZero() && e.GIDType != 0:
		return bad("GID type", e.GIDType, "none, as there is no GID")
	case !e.GID.IsZero() && (e.GIDType < GIDTypeIB || e.GIDType > GIDTypeRoCEv2):
		return bad("GID type", uint8(e.GIDType), "1 to 3")
	case e.GID[0] == 0xff:
		return bad("GID", e.GID, "a unicast address")
	case e.LinkLayer == LinkLayerEthernet && e.GID.IsZero():
		return bad("GID", e.GID, "an address, as the link layer is Ethernet")
	case e.LinkLayer == LinkLayerInfiniBand && e.GID.IsZero() && e.LID == 0:
		return bad("LID", e.LID, fmt.Sprintf("1 to %d, as there is no GID", maxUnicastLID))
	}
	return nil
}

const (
	endpointKind    = "RDE"
	endpointVersion = 1
	endpointLen     = 40
)

// AppendBinary appends the 40 bytes of e's binary form to b. It is fixed in size
// and starts with a version; all numbers are big-endian:
//
//	bytes 0-2    "RDE"
//	byte  3      1, the version
//	bytes 4-7    QPN
//	bytes 8-11   PSN
//	bytes 12-15  QKey
//	bytes 16-17  LID
//	byte  18     link layer: 0 unspecified, 1 InfiniBand, 2 Ethernet
//	byte  19     GID type: 0 none, 1 InfiniBand, 2 RoCE v1, 3 RoCE v2
//	bytes 20-35  GID
//	byte  36     MTU: 1 to 5 for 256 to 4096 bytes
//	byte  37     MaxReadDepth
//	byte  38     MaxReadDepthTarget
//	byte  39     type: 0 not said, 1 RC, 2 UD, 3 SRD, 4 DC initiator, 5 DC target
//
// It fails for an e that [Endpoint.UnmarshalBinary] would refuse. It implements
// [encoding.BinaryAppender].
func (e Endpoint) AppendBinary(b []byte) ([]byte, error) {
	if err := e.validate(); err != nil {
		return b, err
	}
	b = append(b, endpointKind...)
	b = append(b, endpointVersion)
	b = binary.BigEndian.AppendUint32(b, e.QPN)
	b = binary.BigEndian.AppendUint32(b, e.PSN)
	b = binary.BigEndian.AppendUint32(b, e.QKey)
	b = binary.BigEndian.AppendUint16(b, e.LID)
	b = append(b, byte(e.LinkLayer), byte(e.GIDType))
	b = append(b, e.GID[:]...)
	return append(b, byte(mtuCode(e.MTU)), byte(e.MaxReadDepth), byte(e.MaxReadDepthTarget), byte(e.Type)), nil
}

// MarshalBinary implements [encoding.BinaryMarshaler] by [Endpoint.AppendBinary].
func (e Endpoint) MarshalBinary() ([]byte, error) {
	return e.AppendBinary(make([]byte, 0, endpointLen))
}

// UnmarshalBinary reads what [Endpoint.AppendBinary] writes. It refuses anything
// else: another length or version, and every number out of its range, which the
// error names. e is then unchanged.
func (e *Endpoint) UnmarshalBinary(data []byte) error {
	if err := checkHeader(data, endpointKind, endpointVersion, endpointLen); err != nil {
		return decodeError("endpoint", err)
	}
	mtu := mtuOf(data[36])
	if mtu == 0 {
		return decodeError("endpoint", fmt.Errorf("MTU has code %d, allowed is 1 to 5", data[36]))
	}
	decoded := Endpoint{
		QPN:                binary.BigEndian.Uint32(data[4:]),
		PSN:                binary.BigEndian.Uint32(data[8:]),
		QKey:               binary.BigEndian.Uint32(data[12:]),
		LID:                binary.BigEndian.Uint16(data[16:]),
		LinkLayer:          LinkLayer(data[18]),
		GIDType:            GIDType(data[19]),
		GID:                GID(data[20:36]),
		MTU:                mtu,
		MaxReadDepth:       int(data[37]),
		MaxReadDepthTarget: int(data[38]),
		Type:               QPType(data[39]),
	}
	if err := decoded.validate(); err != nil {
		return err
	}
	*e = decoded
	return nil
}

// endpointJSON is the JSON form of an Endpoint.
type endpointJSON struct {
	Version            int     `json:"version"`
	Type               string  `json:"type,omitempty"`
	QPN                *uint32 `json:"qpn"`
	PSN                *uint32 `json:"psn"`
	QKey               uint32  `json:"qkey,omitempty"`
	LID                uint16  `json:"lid,omitempty"`
	GID                *GID    `json:"gid,omitempty"`
	GIDType            string  `json:"gidType,omitempty"`
	LinkLayer          string  `json:"linkLayer"`
	MTU                MTU     `json:"mtu"`
	MaxReadDepth       int     `json:"maxReadDepth"`
	MaxReadDepthTarget int     `json:"maxReadDepthTarget"`
}

// MarshalJSON returns e as an object with one member for each field, as in
// {"version":1,"type":"RC","qpn":17,"psn":4711,"gid":"::ffff:10.0.0.1","gidType":"RoCE v2","linkLayer":"Ethernet","mtu":1024,"maxReadDepth":16,"maxReadDepthTarget":16}.
// It fails for an e that [Endpoint.UnmarshalJSON] would refuse.
func (e Endpoint) MarshalJSON() ([]byte, error) {
	if err := e.validate(); err != nil {
		return nil, err
	}
	j := endpointJSON{
		Version:            endpointVersion,
		QPN:                &e.QPN,
		PSN:                &e.PSN,
		QKey:               e.QKey,
		LID:                e.LID,
		LinkLayer:          e.LinkLayer.String(),
		MTU:                e.MTU,
		MaxReadDepth:       e.MaxReadDepth,
		MaxReadDepthTarget: e.MaxReadDepthTarget,
	}
	if !e.GID.IsZero() {
		j.GID, j.GIDType = &e.GID, e.GIDType.String()
	}
	if e.Type != 0 {
		j.Type = e.Type.String()
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what [Endpoint.MarshalJSON] writes, and refuses what
// [Endpoint.UnmarshalBinary] does. Unknown members are ignored.
func (e *Endpoint) UnmarshalJSON(data []byte) error {
	var j endpointJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return decodeError("endpoint", err)
	}
	switch {
	case j.Version != endpointVersion:
		return decodeError("endpoint", fmt.Errorf("version %d, known is %d", j.Version, endpointVersion))
	case j.QPN == nil || j.PSN == nil:
		return decodeError("endpoint", errors.New("qpn or psn is missing"))
	case linkLayerOf(j.LinkLayer).String() != j.LinkLayer:
		return decodeError("endpoint", fmt.Errorf("the link layer %q is not known", j.LinkLayer))
	case j.GIDType != "" && gidTypeOf(j.GIDType) == 0:
		return decodeError("endpoint", fmt.Errorf("the GID type %q is not known", j.GIDType))
	case j.Type != "" && qpTypeOf(j.Type) == 0:
		return decodeError("endpoint", fmt.Errorf("the type %q is not known", j.Type))
	}
	decoded := Endpoint{
		Type:               qpTypeOf(j.Type),
		QPN:                *j.QPN,
		PSN:                *j.PSN,
		QKey:               j.QKey,
		LID:                j.LID,
		GIDType:            gidTypeOf(j.GIDType),
		LinkLayer:          linkLayerOf(j.LinkLayer),
		MTU:                j.MTU,
		MaxReadDepth:       j.MaxReadDepth,
		MaxReadDepthTarget: j.MaxReadDepthTarget,
	}
	if j.GID != nil {
		decoded.GID = *j.GID
	}
	if err := decoded.validate(); err != nil {
		return err
	}
	*e = decoded
	return nil
}

// linkLayerOf returns the link layer with the given name, unspecified if there
// is none.
func linkLayerOf(name string) LinkLayer {
	return called(name, LinkLayerInfiniBand, LinkLayerEthernet)
}

// gidTypeOf returns the GID type with the given name, zero if there is none.
func gidTypeOf(name string) GIDType {
	return called(name, GIDTypeIB, GIDTypeRoCEv1, GIDTypeRoCEv2)
}

// qpTypeOf returns the type with the given name, zero if there is none.
func qpTypeOf(name string) QPType { return called(name, RC, UD, SRD, DCInitiator, DCTarget) }

// called returns the value whose String is name, the zero value if there is none.
func called[T fmt.Stringer](name string, values ...T) (v T) {
	for _, v := range values {
		if v.String() == name {
			return v
		}
	}
	return v
}
