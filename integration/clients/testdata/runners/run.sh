# Does with sdk/bash/storefront.sh what lines of JSON on standard input say, and prints what came of it:
# see doc.go in integration/clients.

source "${BASH_SOURCE[0]%/*}/../../../../sdk/bash/storefront.sh"
exec 3>&1
errors=$(mktemp)
trap 'rm -rf "$errors" "$errors.config" ${journal+"$journal"}' EXIT
export STOREFRONT_JOURNAL=${JOURNAL-}
[[ $STOREFRONT_JOURNAL ]] || STOREFRONT_JOURNAL=$(mktemp -d) journal=$STOREFRONT_JOURNAL
if [[ ${STOREFRONT_ACCOUNT-} ]]; then
	printf 'header = "Authorization: %s"\n' "$STOREFRONT_ACCOUNT" >"$errors.config"
	export STOREFRONT_CONFIG=$errors.config
fi

if [[ ${STEPS-} ]]; then
	touch "$STEPS"
	step() {
		(($(wc -l <"$STEPS") + 1 != ${KILL:-0})) || kill -9 -- -$$ # which the test has made a group
		echo "$1" >>"$STEPS"
	}
	sync() { step flush && command sync "$@"; }
	mv() { step rename && command mv "$@"; }
fi
if [[ ${SLEEPS-} ]]; then
	sleep() { echo "{\"sleeps\":$1}" >&3; }
fi
[[ ! ${CLOCK-} ]] || _storefront_now() { printf -v "$1" '%d' $((CLOCK + $2)); }
[[ ! ${TRY-} ]] || curl() { command curl "$@" --max-time "$TRY"; }

while IFS= read -r ask; do
	if [[ $ask == '{"can":'* ]]; then
		echo '{"can":["resume","lists","products","fields","history","find"]}'
		continue
	fi
	mapfile -d '' -t asked < <(jq -j '(.list, .product, .item, .qty, .fields, .find, .get) | "\(. // "")\u0000"' <<<"$ask")
	list=${asked[0]} product=${asked[1]} item=${asked[2]} qty=${asked[3]} fields=${asked[4]} find=${asked[5]} get=${asked[6]} ok=1
	if [[ $list == pending ]]; then
		member='{ids: ($out | split("\n"))}' out=$(storefront pending 2>"$errors") || ok=''
	elif [[ $list ]]; then
		member='{ids: [$out | split("\n")[] | fromjson.id]}' out=$(storefront "$list" 2>"$errors") || ok=''
	elif [[ $find ]]; then
		member='if $out == "" then {created: false} else {id: $out | fromjson.id} end'
		out=$(storefront find-order "$item" 2>"$errors") || ok=''
	elif [[ $get ]]; then
		member='{got: $out}' out=$(storefront get-order "$get" 2>"$errors") || ok=''
	elif [[ $product ]]; then
		member='{name: $out | fromjson.name}' out=$(storefront product "$product" 2>"$errors") || ok=''
	else
		member='{id: $out | fromjson.id}' out=$(storefront order "$item" ${qty:+"$item" "$qty"} \
			${fields:+"$fields"} 2>"$errors") || ok=''
		[[ ! $ok || ${JOURNAL-} ]] || storefront forget "$item"
		if [[ $ok && ! -s $errors && $out =~ ^'{"id":"'([^\"]*)'",' ]]; then
			printf '%s,"id":"%s"}\n' "${ask%\}}" "${BASH_REMATCH[1]}" # without another process
			continue
		fi
	fi
	[[ $ok ]] || member='{error: ($error | rtrimstr("\n"))}'
	[[ $find || $(<"$errors") != Refused:* ]] || member+=' + {created: false}'
	cat "$errors" >&2
	# Neither is an argument, which has 128 KiB at most.
	jq -c --rawfile out <(printf '%s' "$out") --rawfile error "$errors" ". + $member" <<<"$ask"
done
