package sqlstore

import (
	"time"

	"example.com/storefront/internal/watchdog"
)

// times are how long things may take. Most are parts of [Options].Timeout, so that whatever fails, a call has
// time left to try again.
type times struct {
	// Call is Timeout: a call, with all its tries and the pauses between them.
	//
	// Silence is 1/5. Tries of a fifth and of two fifths fit into a call, and a pause of a server that is in
	// order does not end one.
	//
	// Early is 1/10: enough for a call to try another server.
	//
	// Probe is 1/40, and ProbeAlone twice Timeout. Finding that the database is back may take long, as where
	// a driver asks several servers in turn.
	watchdog.Times

	// commit is 1/4 of it, for a commit that orders share. Then the next commit begins beside it, and its
	// orders are tried one by one: three quarters are left for them.
	commit time.Duration

	// keep is 1/4, how long an order keeps a connection for which others wait: it may wait for a lock for
	// ever. Those that have waited as long have more than half of their time left.
	keep time.Duration

	// yield is 1/32, after which such an order looks again whether others wait, or up to twice that: at random,
	// so that not all give way in one instant.
	yield time.Duration

	// inspect is 1/4, for an inspection of the tables on the way of an order, which goes on without it.
	inspect time.Duration

	// rollBack is 1/5: the outcome of the call is known by then, and its caller waits.
	rollBack time.Duration
}

func timesOf(timeout time.Duration) times {
	return times{
		Times: watchdog.Times{
			Call:       timeout,
			Silence:    timeout / 5,
			Early:      timeout / 10,
			Probe:      timeout / 40,
			ProbeAlone: 2 * timeout,
		},
		commit:   timeout / 4,
		keep:     timeout / 4,
		yield:    timeout / 32,
		inspect:  timeout / 4,
		rollBack: timeout / 5,
	}
}

// These do not depend on Timeout.
const (
	// The first pause between two tries is at most minPause, so that a lost connection costs a call hardly
	// any time. The limit then doubles, up to maxPause: a database that is starting is asked a few times a
	// second by each call, and soon found back.
	minPause = 2 * time.Millisecond
	maxPause = 500 * time.Millisecond

	// inspectEvery is how often the store inspects its tables, and looks at the settings of its connections,
	// while orders come. What a promise rests on, such as a constraint, may be gone since the last time.
	inspectEvery = 15 * time.Second

	// inspectFlawed is the same while something is wrong with them: orders soon go on once it is mended.
	inspectFlawed = time.Second

	// inspectWait is for how long the other orders leave the inspection to one of them.
	inspectWait = 5 * time.Second

	// inspectPause is the first pause before a catalog that may be wrong for a moment is read again. Each
	// further one is twice as long.
	inspectPause = 20 * time.Millisecond
)
