package docs

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"example.com/storefront/integration/internal/need"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/internal/must"
)

// A kubernetesPod is what the test looks at in the template of a pod.
type kubernetesPod struct {
	Containers []struct {
		Args  []string
		Ports []struct {
			ContainerPort int `yaml:"containerPort"`
		}
		StartupProbe   kubernetesProbe `yaml:"startupProbe"`
		LivenessProbe  kubernetesProbe `yaml:"livenessProbe"`
		ReadinessProbe kubernetesProbe `yaml:"readinessProbe"`
	}
}

type kubernetesProbe struct {
	HTTPGet struct {
		Path string
		Port int
	} `yaml:"httpGet"`
}

// The probes of the documented Deployment ask for what the program answers.
func TestKubernetesProbes(t *testing.T) {
	text := must.Get(os.ReadFile(filepath.Join(repository, "docs", "deploy", "kubernetes.yaml")))(t)
	var deployment struct {
		Spec struct{ Template struct{ Spec kubernetesPod } }
	}
	must.OK(t, yaml.Unmarshal(text, &deployment))
	pod := deployment.Spec.Template.Spec
	shop := pod.Containers[0]

	db, addr := slices.Index(shop.Args, "-db")+1, slices.Index(shop.Args, "-addr")+1
	if db == 0 || addr == 0 || shop.Args[addr] != ":"+strconv.Itoa(shop.Ports[0].ContainerPort) {
		t.Fatalf("the arguments are %q, want a database and the port %d", shop.Args, shop.Ports[0].ContainerPort)
	}
	shop.Args[db] = "shop.db" // in the folder of the service
	url := startService(t, process.Storefrontd, shop.Args...)
	for _, probe := range []kubernetesProbe{shop.StartupProbe, shop.LivenessProbe, shop.ReadinessProbe} {
		// On a busy machine, what /readyz checks may take too long.
		process.WaitFor(t, probe.HTTPGet.Path+" is answered", 5*time.Minute, nil, func() error {
			w, err := http.Get(url + probe.HTTPGet.Path)
			if err != nil {
				return err
			}
			w.Body.Close()
			kind := w.Header.Get("Content-Type")
			if w.StatusCode != http.StatusOK || kind != "text/plain; charset=utf-8" {
				return fmt.Errorf("it is %s and %s, want a probe's 200", w.Status, kind)
			}
			return nil
		})
		if probe.HTTPGet.Port != shop.Ports[0].ContainerPort {
			t.Errorf("%s is asked on port %d", probe.HTTPGet.Path, probe.HTTPGet.Port)
		}
	}
}

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
