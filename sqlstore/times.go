package sqlstore

import "time"

// times are how long things may take. Most are parts of [Options].Timeout, so that whatever fails, a call has
// time left to try again.
type times struct {
	// call is Timeout: a call, with all its tries and the pauses between them.
	call time.Duration

	// commit is 1/4 of it, for a commit that orders share. Then the next commit begins beside it, and its
	// orders are tried one by one: three quarters are left for them.
	commit time.Duration

	// keep is 1/4, how long an order keeps a connection for which others wait: it may wait for a lock for
	// ever. Those that have waited as long have more than half of their time left.
	keep time.Duration

	// inspect is 1/4, for a look at the tables on the way of an order, which goes on without it.
	inspect time.Duration

	// rollBack is 1/5: the outcome of the call is known by then, and its caller waits.
	rollBack time.Duration

	// silence is 1/5: a server that answers nobody for so long is silent. Tries of a fifth, and of two
	// fifths, fit into a call, and a pause of a server that is in order does not end one.
	silence time.Duration

	// early is 1/10, for a call while the database is down: it has time to try another server.
	early time.Duration

	// probe is 1/40. One call in so long has all of its time though the database is down, as finding that
	// it is back may take long, as where a driver asks several servers in turn.
	probe time.Duration

	// probeAlone is twice Timeout. Of calls that come one at a time, each would be a probe.
	probeAlone time.Duration
}

func timesOf(timeout time.Duration) times {
	return times{
		call:       timeout,
		commit:     timeout / 4,
		keep:       timeout / 4,
		inspect:    timeout / 4,
		rollBack:   timeout / 5,
		silence:    timeout / 5,
		early:      timeout / 10,
		probe:      timeout / 40,
		probeAlone: 2 * timeout,
	}
}

// These do not depend on Timeout.
const (
	// The first pause between two tries is at most minPause, so that a lost connection costs a call hardly
	// any time. The limit then doubles, up to maxPause: a database that is starting is asked a few times a
	// second by each call, and soon found back.
	minPause = 2 * time.Millisecond
	maxPause = 500 * time.Millisecond

	// inspectEvery is how often the store looks at its tables, and at the settings of its connections, while
	// orders come. What a promise rests on, such as a constraint, may be gone since the last time.
	inspectEvery = 15 * time.Second

	// inspectFlawed is the same while something is wrong with them: orders soon go on once it is mended.
	inspectFlawed = time.Second

	// inspectOnce is for how long the other orders leave the look to one of them.
	inspectOnce = 5 * time.Second

	// inspectPause is the first pause before a catalog that may be wrong for a moment is read again. Each
	// further one is twice as long.
	inspectPause = 20 * time.Millisecond
)
