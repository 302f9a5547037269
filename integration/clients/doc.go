// Package clients tests the clients in folder sdk of the repository, and has them meet the faults of package
// clienttest.
//
// A program in testdata/runners does with one of those clients what lines of JSON on its standard
// input say, at the service in STOREFRONT_URL, and prints a line of what came of each:
//
//	{"item":"teapot","qty":2}  becomes  {"item":"teapot","qty":2,"id":"ord_…"}
//	{"list":"users"}                    {"list":"users","ids":["ada"]}
//	{"product":"teapot"}                {"product":"teapot","name":"Teapot"}
//	{"get":"ord_7"}                     {"get":"ord_7","got":"{…}"}
//	{"can":["resume","lists"]}          {"can":["resume","lists","products","fields","history","find"]}
//
// or has an error, whose kind comes first. An order may have fields, which are text. An order that has
// failed is gone on with if it comes again, or looked for if it comes with find. With account, and nothing
// else, somebody else signs in.
// With JOURNAL, a folder, orders are placed through a journal, under their items; the list pending is that of
// its drafts, and without qty, it goes on with the order.
// STOREFRONT_ACCOUNT is the account, and sent as Authorization. STOREFRONT_PATIENCE is for how many
// seconds it goes on with an order. With STEPS, a file, a line is added to it before each step with which
// the journal writes, and the runner kills itself before the step whose number is in KILL. With SLEEPS, it
// does not sleep between tries, but prints for how many seconds it would. CLOCK is what its clock always says,
// and TRY is for how long a try may take, both in seconds.
package clients
