package rdma

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/goverbs/goverbs/rdma/backend"
)

// Config holds the settings of queue pairs. Given to [Open] it sets the defaults
// of everything made under that device; within a [QPConfig] it overrides them for
// one queue pair. A field that is 0 takes the default, a negative one asks for zero,
// where that means something. The main fields are
//
//	Port                     first active port
//	MaxSendWR, MaxRecvWR     512 requests in each queue
//	MaxSendSGE, MaxRecvSGE   4 pieces of memory in a request
//	MaxInline                0 bytes that a request carries in itself
//	PathMTU                  4096 bytes, or what the port can do
//	Timeout, RetryCount      67.1 ms and 7 times until a peer counts as lost
//	RNRRetry                 7: wait for ever for a peer's receive
//	MaxReadDepth             16 reads and atomics in flight
//	SignalInterval           1: the device reports each request
//	GID                      best address of the port
//
// Documentation of all of them: go doc github.com/goverbs/goverbs/rdma/backend.Config
type Config = backend.Config

// MTU is a packet payload in bytes.
//
// Its constants: go doc github.com/goverbs/goverbs/rdma/backend.MTU
type MTU = backend.MTU

// The payloads that InfiniBand defines.
const (
	MTU256  = backend.MTU256
	MTU512  = backend.MTU512
	MTU1024 = backend.MTU1024
	MTU2048 = backend.MTU2048
	MTU4096 = backend.MTU4096
)

// usualConfig returns the defaults before backend and device have their say.
func usualConfig() Config {
	return Config{
		MaxSendWR:          512,
		MaxRecvWR:          512,
		MaxSendSGE:         4,
		MaxRecvSGE:         4,
		PathMTU:            MTU4096,
		RetryCount:         7,
		RNRRetry:           7, // for ever
		Timeout:            timeout(14),
		MinRNRTimer:        rnrTimer(12),
		MaxReadDepth:       16,
		MaxReadDepthTarget: 16,
		HopLimit:           64, // 1 would not leave the subnet
		SignalInterval:     1,
		MaxMessage:         math.MaxInt64,
	}
}

// deviceConfig resolves the configuration of a device: the usual defaults,
// shaped by backend, then by the device's limits, then overridden by what the
// user set, nil for nothing.
func deviceConfig(defaults func(*Config) error, info *DeviceInfo, user *Config) (Config, error) {
	cfg := usualConfig()
	if err := defaults(&cfg); err != nil {
		return Config{}, err
	}
	cfg.Port = info.defaultPort()
	if user == nil {
		user = new(Config)
	}
	if user.Port != 0 {
		cfg.Port = user.Port
	}
	port, err := info.Port(cfg.Port)
	if err != nil {
		return Config{}, err
	}
	limits := limitsOf(info, port)
	limits.shrink(&cfg)
	return override(cfg, *user, limits)
}

// overrideConfig resolves the configuration of one queue pair from its
// device's, which is resolved, and what the user set for the queue pair.
func overrideConfig(base Config, info *DeviceInfo, user Config) (Config, error) {
	if user.Port == 0 {
		user.Port = base.Port
	}
	port, err := info.Port(user.Port)
	if err != nil {
		return Config{}, err
	}
	limits := limitsOf(info, port)
	limits.shrink(&base) // the device's defaults were shaped for its own port
	return override(base, user, limits)
}

// limits are the most that a device and one of its ports can do.
type limits struct {
	Config           // the largest value of each number
	allReads  int    // reads and atomics to all queue pairs together
	device    string // for the text of errors
	mtuReason string
}

// maxMessage is the most bytes that one message can have: InfiniBand
// specification, volume 1, C9-2.
const maxMessage = 1 << 31

func limitsOf(info *DeviceInfo, port *PortInfo) limits {
	l := limits{
		device:   info.Name,
		allReads: info.MaxReads,
		Config: Config{
			Port:               len(info.Ports),
			MaxSendWR:          info.QPLimits.MaxSendWR,
			MaxRecvWR:          info.QPLimits.MaxRecvWR,
			MaxSendSGE:         info.QPLimits.MaxSendSGE,
			MaxRecvSGE:         info.QPLimits.MaxRecvSGE,
			MaxInline:          cmp.Or(info.QPLimits.MaxInline, math.MaxInt32),
			PathMTU:            MTU4096,
			RetryCount:         7,
			RNRRetry:           7,
			Timeout:            timeout(31),
			MinRNRTimer:        rnrTimer(0),
			MaxReadDepth:       min(info.MaxQPInitiatorReads, maxReadDepth),
			MaxReadDepthTarget: min(info.MaxQPReads, maxReadDepth),
			PKeyIndex:          max(port.PKeyTableLen-1, 0),
			TrafficClass:       math.MaxUint8,
			FlowLabel:          1<<20 - 1,
			SL:                 15,
			HopLimit:           math.MaxUint8,
			SignalInterval:     math.MaxInt32, // bound to the queue's depth below
			MaxMessage:         max(port.MaxMessage, info.QPLimits.MaxRDMASize),
		},
		mtuReason: "the largest there is",
	}
	if l.MaxMessage <= 0 { // the port does not tell
		l.MaxMessage = maxMessage
	}
	switch {
	case port.State == PortActive && port.ActiveMTU != 0:
		l.PathMTU, l.mtuReason = port.ActiveMTU, "the port's active MTU"
	case port.MaxMTU != 0:
		l.PathMTU, l.mtuReason = port.MaxMTU, "the port's largest MTU"
	}
	if port.LinkLayer == LinkLayerEthernet {
		l.SL = 7 // Ethernet has eight priorities
	}
	return l
}

// shrink reduces defaults that are more than the device can do.
func (l limits) shrink(cfg *Config) {
	cfg.MaxSendWR = min(cfg.MaxSendWR, l.MaxSendWR)
	cfg.MaxRecvWR = min(cfg.MaxRecvWR, l.MaxRecvWR)
	cfg.MaxSendSGE = min(cfg.MaxSendSGE, l.MaxSendSGE)
	cfg.MaxRecvSGE = min(cfg.MaxRecvSGE, l.MaxRecvSGE)
	cfg.PathMTU = min(cfg.PathMTU, l.PathMTU)
	cfg.MaxReadDepth = min(cfg.MaxReadDepth, l.MaxReadDepth)
	cfg.MaxReadDepthTarget = min(cfg.MaxReadDepthTarget, l.MaxReadDepthTarget)
	if l.allReads > 0 { // queue pairs share what the device serves; 0 is not told
		cfg.MaxReadDepthTarget = min(cfg.MaxReadDepthTarget, l.allReads)
	}
	cfg.MaxMessage = min(cfg.MaxMessage, l.MaxMessage)
}

// override returns base with the fields that are set in user, or says which of
// them is more than the limits.
func override(base, user Config, l limits) (Config, error) {
	r := resolver{device: l.device}
	cfg := base

	r.number("Port", &cfg.Port, user.Port, 1, l.Port, "")
	r.number("MaxSendWR", &cfg.MaxSendWR, user.MaxSendWR, 0, l.MaxSendWR, "")
	r.number("MaxRecvWR", &cfg.MaxRecvWR, user.MaxRecvWR, 0, l.MaxRecvWR, "")
	r.number("MaxSendSGE", &cfg.MaxSendSGE, user.MaxSendSGE, 0, l.MaxSendSGE, "")
	r.number("MaxRecvSGE", &cfg.MaxRecvSGE, user.MaxRecvSGE, 0, l.MaxRecvSGE, "")
	r.number("MaxInline", &cfg.MaxInline, user.MaxInline, 0, l.MaxInline, "")
	r.number("RetryCount", &cfg.RetryCount, user.RetryCount, 0, l.RetryCount, "")
	r.number("RNRRetry", &cfg.RNRRetry, user.RNRRetry, 0, l.RNRRetry, "")
	r.number("MaxReadDepth", &cfg.MaxReadDepth, user.MaxReadDepth, 0, l.MaxReadDepth, "")
	r.number("MaxReadDepthTarget", &cfg.MaxReadDepthTarget, user.MaxReadDepthTarget, 0, l.MaxReadDepthTarget, "")
	r.number("PKeyIndex", &cfg.PKeyIndex, user.PKeyIndex, 0, l.PKeyIndex, "")
	r.number("TrafficClass", &cfg.TrafficClass, user.TrafficClass, 0, l.TrafficClass, "")
	r.number("FlowLabel", &cfg.FlowLabel, user.FlowLabel, 0, l.FlowLabel, "")
	r.number("SL", &cfg.SL, user.SL, 0, l.SL, "")
	r.number("HopLimit", &cfg.HopLimit, user.HopLimit, 1, l.HopLimit, "")

	// All completions of a queue must not hang on one beyond its end.
	cfg.SignalInterval = max(min(cfg.SignalInterval, cfg.MaxSendWR), 1)
	r.number("SignalInterval", &cfg.SignalInterval, user.SignalInterval, 1, max(cfg.MaxSendWR, 1), "MaxSendWR")

	if user.MaxMessage != 0 {
		if user.MaxMessage < 0 || user.MaxMessage > l.MaxMessage {
			r.refuse("MaxMessage", user.MaxMessage, fmt.Sprintf("1 to %d bytes", l.MaxMessage))
		}
		cfg.MaxMessage = user.MaxMessage
	}
	if user.PathMTU != 0 {
		if mtuCode(user.PathMTU) == 0 {
			r.refuse("PathMTU", int(user.PathMTU), "256, 512, 1024, 2048 or 4096")
		} else if user.PathMTU > l.PathMTU {
			r.refuse("PathMTU", int(user.PathMTU), fmt.Sprintf("at most %d, %s", l.PathMTU, l.mtuReason))
		}
		cfg.PathMTU = user.PathMTU
	}
	r.duration("Timeout", &cfg.Timeout, user.Timeout, true, l.Timeout)
	r.duration("MinRNRTimer", &cfg.MinRNRTimer, user.MinRNRTimer, false, l.MinRNRTimer)

	if !user.GID.IsZero() {
		if i, ok := user.GID.Index(); ok && i < 0 {
			r.refuse("GID", i, "an index from 0")
		}
		cfg.GID = user.GID
	}
	cfg.RelaxedOrdering = base.RelaxedOrdering || user.RelaxedOrdering
	if user.Logger != nil {
		cfg.Logger = user.Logger
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return cfg, r.err
}

// resolver overrides fields one by one and keeps the first refusal.
type resolver struct {
	device string
	err    error
}

// number sets *field to the user's value: 0 leaves it, a negative one means
// zero, which least says whether it is allowed.
func (r *resolver) number(name string, field *int, user, least, most int, reason string) {
	if user == 0 {
		return
	}
	value := max(user, 0)
	if value < least || value > most {
		allowed := fmt.Sprintf("%d to %d", least, most)
		if reason != "" {
			allowed += ", " + reason
		}
		r.refuse(name, user, allowed)
		return
	}
	*field = value
}

// duration does the same for a duration.
func (r *resolver) duration(name string, field *time.Duration, user time.Duration, zero bool, most time.Duration) {
	switch {
	case user == 0:
	case user > most:
		r.refuse(name, user, fmt.Sprintf("at most %v", most))
	case user < 0 && !zero:
		r.refuse(name, user, "more than 0")
	default:
		*field = max(user, 0)
	}
}

func (r *resolver) refuse(field string, value any, allowed string) {
	if r.err == nil {
		r.err = &Error{Op: "config", Device: r.device, Err: fmt.Errorf("%s is %v, allowed is %s", field, value, allowed)}
	}
}
