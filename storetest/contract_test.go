package storetest

import (
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"strings"
	"testing"

	"example.com/storefront/internal/must"
)

// notPromises are the sentences of the contract that a store cannot break, with the
// reason. Those in parentheses say why something else is so.
var notPromises = map[string]string{
	"A Store holds the users, products, widgets and orders that the service fronts":                "says what it is",
	"MemStore is the reference implementation":                                                     "says where to look",
	"Package storetest checks any other: it has a test for each promise made here, named after it": "says where to look",
	"If any method returns an error that matches ErrUnavailable or context.DeadlineExceeded, the service answers 503 Service Unavailable with Retry-After, whatever else the error matches":                                                     "is about the service",
	"An error that the method's comment does not name is answered with 500 Internal Server Error":                                                                                                                                               "is about the service",
	"So is a panic, the zero Resource, a list that does not ascend from its position, a product with another ID, an order with another item, quantity or fields, and one with an ID or a CreatedAt that it cannot have":                         "is about the service",
	"Requests for a product share a call, so the ctx of GetProduct may carry the values of another request, which may have ended: one of the same scope or, with Options.Shared, of any":                                                        "is about the service",
	"What later versions ask of a store comes as a field of [Options] with an interface of its own, as OrderReader has":                                                                                                                         "is about wrappers",
	"The service finds nothing by type assertion, so a wrapper hides nothing":                                                                                                                                                                   "is about wrappers",
	"No method writes users, products or widgets: how they get into the store is up to the embedding program":                                                                                                                                   "says why there is no method",
	"So is how long orders are kept once their keys may be forgotten":                                                                                                                                                                           "leaves the store a choice",
	"The limit is between 1 and Options.MaxPageSize+1":                                                                                                                                                                                          "is about the service",
	"CreateOrder creates order, unless an order was created with key before, and returns the order that was created with key":                                                                                                                   "sums up what follows",
	"The service has checked the order: its item is valid UTF-8 of 1 to 255 characters without control characters, its quantity is 1 to 2^53-1, its fields are as Fields says, and CreatedAt is the current time in UTC, in whole milliseconds": "is about the service",
	"Times are equal as instants, and Fields byte for byte, which a database's type for JSON may not keep":                                                                                                                                      "leaves the store a choice",
	"A Store may refuse an order that it would otherwise create, such as one for what is sold out, with an error that matches *Refusal by errors.As":                                                                                            "leaves the store a choice",
	"An OrderReader returns orders to those whose they are: the scope of a method is that of the key with which an order was created":                                                                                                           "says what it is",
	"The Resource of an Order is NewResource(o.ID, o)":                                                                                                                                                                                          "is checked in each subtest",
	"A program that knows more of an order, such as its state, wraps a reader and adds it with Resource.With":                                                                                                                                   "leaves the store a choice",
	"Errors are as those of a Store": "is about the service",
	"What a reader returns may still be undone by a fail-over: only CreateOrder acknowledges.)":                           "says why",
	"The ID is as a client has sent it: it follows the rules of NewResource":                                              "is about the service",
	"The ID is as a client has sent it: it follows the rules of NewResource, but may have slashes, so it is no file name": "is about the service",
}

func TestEverySentenceOfTheContractHasASubtestOfItsName(t *testing.T) {
	contract := contract(t)
	if len(contract) != len(groups()) {
		t.Errorf("the contract has the methods %v", contract)
	}
	unused := maps.Clone(notPromises)
	for _, g := range groups() {
		left := make(map[string]bool)
		for _, sentence := range contract[g.name] {
			if _, known := notPromises[sentence]; !known && !strings.HasPrefix(sentence, "(") {
				left[sentence] = true
			}
			delete(unused, sentence)
		}
		for _, p := range g.promises {
			if !left[p.sentence] {
				t.Errorf("%s: the suite has a subtest that the contract has not: %s", g.name, p.sentence)
			}
			delete(left, p.sentence)
		}
		for sentence := range left {
			t.Errorf("%s: the contract has a sentence without a subtest: %s", g.name, sentence)
		}
	}
	for sentence := range unused {
		t.Errorf("notPromises has a sentence that the contract has not: %s", sentence)
	}
}

// contract returns the sentences of the comments of Store, under "Store", of its methods, and of
// OrderReader with its methods, without the period at the end.
func contract(t *testing.T) map[string][]string {
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range []string{"../store.go", "../orders.go"} { // the contract, and the types that it links to
		files = append(files, must.Get(parser.ParseFile(fset, name, nil, parser.ParseComments))(t))
	}
	pkg := must.Get(doc.NewFromFiles(fset, files, "example.com/storefront"))(t)
	out := make(map[string][]string)
	for _, typ := range pkg.Types {
		if typ.Name != "Store" && typ.Name != "OrderReader" {
			continue
		}
		out[typ.Name] = sentences(pkg, typ.Doc)
		for _, m := range typ.Decl.Specs[0].(*ast.TypeSpec).Type.(*ast.InterfaceType).Methods.List {
			group := m.Names[0].Name
			if typ.Name != "Store" {
				group = typ.Name
			}
			out[group] = append(out[group], sentences(pkg, m.Doc.Text())...)
		}
	}
	return out
}

var betweenSentences = regexp.MustCompile(`(\.\)?) +([A-Z(])`)

func sentences(pkg *doc.Package, text string) []string {
	var out []string
	for _, block := range pkg.Parser().Parse(text).Content {
		paragraph := string((&comment.Printer{TextWidth: -1}).Text(&comment.Doc{Content: []comment.Block{block}}))
		for sentence := range strings.SplitSeq(betweenSentences.ReplaceAllString(strings.TrimSpace(paragraph), "$1\n$2"), "\n") {
			out = append(out, strings.TrimSuffix(sentence, "."))
		}
	}
	return out
}
