package rdmavm

import (
	"regexp"
	"slices"
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

// warning begins what the kernel says after a WARN_ON, behind which it goes on.
const warning = "WARNING: "

// complaint matches the lines in which a kernel says that its state is suspect.
// A passing program proves nothing after one of these. User programs that crash
// ("traps:", "segfault at") are none of the kernel's faults.
var complaint = regexp.MustCompile(`^(` + strings.Join([]string{
	warning,
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
// warnings that an expected pattern matches.
func complaints(log []string, expected []*regexp.Regexp) []string {
	var found []string
	for _, line := range log {
		isExpected := func(e *regexp.Regexp) bool { return e.MatchString(line) }
		if !complaint.MatchString(line) || strings.HasPrefix(line, warning) && slices.ContainsFunc(expected, isExpected) {
			continue
		}
		found = append(found, line)
	}
	return found
}
