package docs

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.com/storefront/integration/internal/need"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/internal/must"
)

// buildingImage tries the command that makes an image, which then serves as nobody, from the folder of a volume.
// Without cgo everything would be compiled again, so no more is looked at than that no package needs it, and a
// linker of C makes the program as one that needs no libraries.
func buildingImage(t *testing.T, command string) {
	need.Programs(t, need.Tools, "buildah")
	if os.Getuid() != 0 {
		t.Skip("who is not root has no second user for the program")
	}
	dir := process.Folder(t)
	buildah := fmt.Sprintf("buildah --root %[1]s/root --runroot %[1]s/run --storage-driver vfs", dir)
	script := strings.NewReplacer("image", dir+"/image", "buildah bud", buildah+" bud --isolation chroot",
		"CGO_ENABLED=0 go build", "CGO_ENABLED=0 go list -deps ./shopdb/cmd/storefrontd >"+dir+"/packages && "+
			"go build -ldflags '-s -w -linkmode external -extldflags -static'").Replace(command)
	script = fmt.Sprintf("%s && container=$(%s from shop:1) && "+
		`echo 'exec %[2]s run --isolation chroot '$container' /shop "$@"' >%s/shop`, script, buildah, dir)
	build := exec.Command("sh", "-c", script)
	build.Dir = repository
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	url := startService(t, func() (string, error) { return "/bin/sh", nil }, dir+"/shop", "-db", "/data/shop.db")
	w := must.Get(http.Get(url + "/v1/users"))(t)
	defer w.Body.Close()
	files := must.Get(exec.Command("find", dir, "-name", "shop.db", "-user", "65534").Output())(t)
	if w.StatusCode != http.StatusOK || len(files) == 0 {
		t.Errorf("it answers %s, and these databases are of its user: %s", w.Status, files)
	}
}

// TestDocumentedFlags has the table of docs/operations.md name each flag of storefrontd.
func TestDocumentedFlags(t *testing.T) {
	text := must.Get(os.ReadFile(filepath.Join(repository, "docs", "operations.md")))(t)
	documented := make(map[string]string)
	row := regexp.MustCompile("(?m)^\\| `-([\\w-]+)` \\| (?:`(.*?)`)? *\\|")
	for _, found := range row.FindAllStringSubmatch(string(text), -1) {
		documented[found[1]] = found[2]
	}
	if flags := process.Flags(t, process.Storefrontd); !maps.Equal(documented, flags) {
		t.Errorf("docs/operations.md has the flags and defaults %v, storefrontd %v", documented, flags)
	}
}
