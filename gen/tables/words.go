package tables

import "strings"

// parseWords reads "CQ WQES=WQEs": a word and its spelling, itself if there
// is no "=".
func parseWords(list string) map[string]string {
	m := map[string]string{}
	for _, w := range strings.Fields(list) {
		word, spelling, ok := strings.Cut(w, "=")
		if !ok {
			spelling = word
		}
		m[strings.ToLower(word)] = spelling
	}
	return m
}
