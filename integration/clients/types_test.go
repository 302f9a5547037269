package clients

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/storefront/integration/internal/node"
	"example.com/storefront/internal/must"
)

// A program in TypeScript has the types that are in the comments of the client for JavaScript.
func TestTypesOfJavaScript(t *testing.T) {
	t.Parallel()
	modules, dir := node.Modules(t), t.TempDir()
	client := must.Get(os.ReadFile("../../sdk/javascript/storefront.mjs"))(t)
	const use = `import { Draft, Shop } from "./storefront.mjs";
const order: { id: string, qty: number } = await new Shop("").order(new Draft("teapot", 2));
for await (const user of new Shop("").users({ limit: 2 })) user.id.length;
// @ts-expect-error
new Draft("teapot", "2"), order.number;
`
	must.OK(t, errors.Join(os.Symlink(modules, filepath.Join(dir, "node_modules")),
		os.WriteFile(filepath.Join(dir, "storefront.mjs"), client, 0o600),
		os.WriteFile(filepath.Join(dir, "use.mts"), []byte(use), 0o600)))
	compile := exec.Command(filepath.Join(modules, ".bin/tsc"), strings.Fields("--allowJs --checkJs --strict --noEmit "+
		"--types node --target es2024 --lib es2024,dom,dom.iterable,dom.asynciterable --module nodenext use.mts")...)
	compile.Dir = dir
	if out, err := compile.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", compile, err, out)
	}
}
