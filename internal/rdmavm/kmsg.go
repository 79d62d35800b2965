package rdmavm

import (
	"regexp"
	"strconv"
	"strings"
)

const kmsgWarning = 4 // KERN_WARNING; what is less than that is worse

// parseKmsg splits a record of /dev/kmsg, "priority,sequence,time,flags;text",
// into its level and the first line of its text (what follows are properties).
func parseKmsg(record string) (level int, text string, ok bool) {
	prefix, text, ok := strings.Cut(record, ";")
	if !ok {
		return 0, "", false
	}
	priority, _, _ := strings.Cut(prefix, ",")
	n, err := strconv.ParseUint(priority, 10, 32)
	if err != nil {
		return 0, "", false
	}
	text, _, _ = strings.Cut(text, "\n")
	return int(n & 7), text, true // the bits above are the facility
}

// complaint matches the lines in which a kernel says that its state is suspect.
// A passing program proves nothing after one of these. User programs that crash
// ("traps:", "segfault at") are none of the kernel's faults.
var complaint = regexp.MustCompile(`^(` + strings.Join([]string{
	`WARNING: `,
	`BUG: `,
	`kernel BUG at `,
	`(Oops|general protection fault|stack segment|invalid opcode|divide error)\b.*\[#\d+\]`,
	`INFO: task .* blocked for more than`,
	`INFO: possible recursive locking|INFO: trying to register non-static key`,
	`refcount_t: `,
	`list_(add|del) corruption`,
	`UBSAN: `,
	`unregister_netdevice: waiting for `,
	`Out of memory: Killed process`,
	`Memory cgroup out of memory`,
	`\S+: page allocation failure`,
	`watchdog: BUG: `,
}, `|`) + `)`)

// complaints returns the lines of a kernel log that are complaints, except for
// those that an expected pattern matches.
func complaints(log []string, expected []*regexp.Regexp) []string {
	var found []string
lines:
	for _, line := range log {
		if !complaint.MatchString(line) {
			continue
		}
		for _, e := range expected {
			if e.MatchString(line) {
				continue lines
			}
		}
		found = append(found, line)
	}
	return found
}
