package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/oasdiff/oasdiff/checker"
	"github.com/oasdiff/oasdiff/diff"
	"github.com/oasdiff/oasdiff/load"
	"golang.org/x/mod/semver"
)

func recordOpenAPI(release, root string) error {
	document, err := os.ReadFile(filepath.Join(root, "openapi.json"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(release, "openapi.json"), document, 0o644)
}

// goes is what oasdiff takes for harmless, as a client that is strict about the
// old document accepts the new one. But a client may rely on what goes.
var goes = map[string]checker.Level{
	checker.ResponseOptionalPropertyRemovedId:     checker.ERR,
	checker.OptionalResponseHeaderRemovedId:       checker.ERR,
	checker.ResponseNonSuccessStatusRemovedId:     checker.ERR,
	checker.ResponsePropertyOneOfRemovedId:        checker.ERR,
	checker.RequestParameterDefaultValueChangedId: checker.ERR,
	checker.RequestParameterDefaultValueRemovedId: checker.ERR,
}

// checkOpenAPI has oasdiff compare openapi.json with the released one.
func checkOpenAPI(release, root string) ([]string, error) {
	old, err := readOpenAPI(release)
	if err != nil {
		return nil, err
	}
	now, err := readOpenAPI(root)
	if err != nil {
		return nil, err
	}
	lines := goneProblems(old, now)
	withoutNewProblems(old, now)
	compared, sources, err := diff.GetWithOperationsSourcesMap(diff.NewConfig(),
		&load.SpecInfo{Url: "released", Spec: old}, &load.SpecInfo{Url: "now", Spec: now})
	if err != nil {
		return nil, err
	}
	config := checker.NewConfig(checker.GetAllChecks(), checker.WithSeverityLevels(goes))
	localizer := checker.NewDefaultLocalizer()
	for _, change := range checker.CheckBackwardCompatibility(config, compared, sources) {
		lines = append(lines, fmt.Sprintf("%s %s: %s (%s)", change.GetOperation(), change.GetPath(), change.GetUncolorizedText(localizer), change.GetId()))
	}
	return lines, nil
}

// readOpenAPI reads the openapi.json of a folder.
func readOpenAPI(folder string) (*openapi3.T, error) {
	text, err := os.ReadFile(filepath.Join(folder, "openapi.json"))
	if err != nil {
		return nil, err
	}
	return openapi3.NewLoader().LoadFromData(text)
}

// goneProblems names the problem types of old that now does not have: oasdiff does not
// look into KnownProblemType where the schema around it is another one.
func goneProblems(old, now *openapi3.T) (lines []string) {
	types := func(document *openapi3.T) (types []string) {
		if schema := document.Components.Schemas["KnownProblemType"]; schema != nil {
			for _, one := range schema.Value.OneOf { // up to 1.0.0-rc.2
				types = append(types, fmt.Sprint(one.Value.Const))
			}
			for _, one := range schema.Value.Enum {
				types = append(types, fmt.Sprint(one))
			}
		}
		return types
	}
	is := types(now)
	for _, was := range types(old) {
		if !slices.Contains(is, was) {
			lines = append(lines, "the problem type "+was+" is gone")
		}
	}
	return lines
}

// withoutNewProblems takes out of now's KnownProblemType what old's does not have.
// A new problem type is an addition: ProblemType has an alternative for those to
// come, and for oasdiff the one alternative would be as good as a change of the
// other. Where there is no such schema, oasdiff has it all.
func withoutNewProblems(old, now *openapi3.T) {
	oldTypes, nowTypes := old.Components.Schemas["KnownProblemType"], now.Components.Schemas["KnownProblemType"]
	if oldTypes == nil || nowTypes == nil {
		return
	}
	nowTypes.Value.OneOf = slices.DeleteFunc(nowTypes.Value.OneOf, func(s *openapi3.SchemaRef) bool {
		return !slices.ContainsFunc(oldTypes.Value.OneOf, func(o *openapi3.SchemaRef) bool { return o.Value.Const == s.Value.Const })
	})
}

// versionsAgree returns an error if openapi.json is not that of an earlier release,
// but has a version that is not above its version.
func versionsAgree(release, root string) error {
	old, err := os.ReadFile(filepath.Join(release, "openapi.json"))
	if err != nil {
		return err
	}
	now, err := os.ReadFile(filepath.Join(root, "openapi.json"))
	if err != nil || bytes.Equal(old, now) {
		return err
	}
	version := func(document []byte) string {
		var d struct{ Info struct{ Version string } }
		if err = json.Unmarshal(document, &d); err != nil || !semver.IsValid("v"+d.Info.Version) {
			err = fmt.Errorf("the info.version of openapi.json is %q: %w", d.Info.Version, err)
		}
		return d.Info.Version
	}
	was, is := version(old), version(now)
	switch {
	case err != nil:
		return err
	case semver.Compare("v"+is, "v"+was) <= 0 || semver.Major("v"+is) != semver.Major("v"+was):
		return fmt.Errorf("openapi.json has changed, and its info.version is %s: want one above %s and below the next major version", is, was)
	}
	return nil
}
