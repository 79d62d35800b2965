package guard

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/gen/internal/facts"
)

// An assertion holds since all that it is about exists.
func TestAssertionsSaySinceWhenTheyHold(t *testing.T) {
	u32 := facts.Type{Kind: facts.Uint, Name: "unsigned", Size: 4}
	inner := &facts.Record{Tag: "union $attr.op", Anon: true, Size: 4, Align: 4, Since: "50", Fields: []facts.Field{
		{Name: "old", Type: u32, Size: 4, Since: "9"},
		{Name: "new", Type: u32, Size: 4, Since: "59"},
	}}
	attr := &facts.Record{Tag: "struct attr", Size: 8, Align: 4, Since: "39", Fields: []facts.Field{
		{Name: "id", Type: u32, Size: 4, Since: "39"},
		{Name: "op", Type: facts.Type{Kind: facts.RecordType, Name: inner.Tag, Size: 4}, Offset: 4, Size: 4, Since: "50"},
	}}
	limit := int64(3)
	list := Layout(attr, map[string]*facts.Record{inner.Tag: inner}, Exact)
	list = append(list, Enum(&facts.Enum{Tag: "$A", Since: "44", Values: []facts.EnumValue{{Name: "A", Since: "44"}, {Name: "B", Value: 1, Since: "45.1"}}})...)
	list = append(list, Macro(&facts.Macro{Name: "LIMIT", Int: &limit, Since: "56"})...)
	list = append(list, Macro(&facts.Macro{Name: "TEXT", Str: "text"})...)
	got := map[string]string{}
	for _, a := range list {
		if a.Kind == Offset || a.Kind == Value {
			got[a.Fact] = a.Since
		}
	}
	want := map[string]string{
		"offset of id in struct attr is 0":     "39",
		"offset of op in struct attr is 4":     "50",
		"offset of op.old in struct attr is 4": "50",
		"offset of op.new in struct attr is 4": "59",
		"value of A is 0":                      "44",
		"value of B is 1":                      "45.1",
		"value of LIMIT is 3":                  "56",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
