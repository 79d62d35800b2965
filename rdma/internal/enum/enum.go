// Package enum names the values of enumerations.
package enum

import "fmt"

// Name returns the name of v, and one that shows its number if it has none.
func Name[E ~int | ~uint8](names map[E]string, v E) string {
	if name, ok := names[v]; ok {
		return name
	}
	return fmt.Sprintf("unknown (%d)", int(v))
}
