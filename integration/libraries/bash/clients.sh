#!/usr/bin/env bash
# The clients of curl and wget, as people write them: `clients.sh NAME` speaks the lines of
# `storefront -trouble`; alone, it prints each name, with the version of its tool.
post=(-X POST -H 'Content-Type: application/json' -d)

curl_once() { curl -sS -f -H "Idempotency-Key: $1" "${post[@]}" "$2" "$url"; }
curl_retry() { curl -sS -f --retry 5 -H "Idempotency-Key: $1" "${post[@]}" "$2" "$url"; }
curl_retry_all() {
	curl -sS -f -L --retry 5 --retry-all-errors --max-time 40 \
		-H "Idempotency-Key: $1" "${post[@]}" "$2" "$url"
}
wget_tries() {
	wget -q -O - --tries=5 --retry-on-http-error=408,409,429,500,502,503,504 --timeout=40 \
		--header="Idempotency-Key: $1" --header='Content-Type: application/json' --post-data="$2" "$url"
}

# careful is the loop of docs/wire.md: it calls a function that prints the body, then a line with the
# status and Retry-After.
careful() {
	local answer status wait body n end=$((SECONDS + 43200))
	for ((n = 0; SECONDS < end; n++)); do
		answer=$("$3" "$1" "$2") || answer=$'\n0 '
		read -r status wait <<<"${answer##*$'\n'}"
		body=${answer%$'\n'*}
		if [[ $status == 201 ]] &&
			jq -es 'length == 1 and (.[0].id | type == "string" and . != "")' <<<"$body" &>/dev/null; then
			printf %s "$body"
			return
		fi
		case $status in
		0 | 000 | 201 | 408 | 409 | 429) ;;
		501 | [1-4]*) echo "status $status: $body" >&2; return 1 ;;
		esac
		[[ $wait =~ ^[0-9]{1,9}$ ]] && sleep $((10#$wait < 3600 ? 10#$wait : 3600))
		sleep "$(awk -v s=$RANDOM -v n=$n 'BEGIN { p = n > 8 ? 60 : 0.25 * 2 ^ n; print p * s / 32768 }')"
	done
	echo "no answer" >&2
	return 1
}
curl_careful() { careful "$1" "$2" curl_try; }
curl_try() {
	curl -sS --max-time 40 -w '\n%{http_code} %header{retry-after}' \
		-H "Idempotency-Key: $1" "${post[@]}" "$2" "$url"
}

clients='curl -f|curl_once|curl
curl -f --retry 5|curl_retry|curl
curl -f -L --retry 5 --retry-all-errors|curl_retry_all|curl
curl, loop of wire.md|curl_careful|curl
wget --tries=5 --retry-on-http-error|wget_tries|wget'

if [[ $# == 0 ]]; then
	while IFS='|' read -r name _ tool; do
		printf '%s\t%s\n' "$name" "$($tool --version | sed -nE '1s/^(GNU )?(\S+ [0-9.]+).*/\2/p')"
	done <<<"$clients"
	exit
fi
while IFS='|' read -r name f _; do
	[[ $name == "$1" ]] && place=$f
done <<<"$clients"
url=$STOREFRONT_URL/v1/orders
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
while IFS= read -r ask; do
	if [[ $ask != *'"item"'* ]]; then
		jq -c '.error = "orders only"' <<<"$ask"
	elif answer=$($place "$(cat /proc/sys/kernel/random/uuid)" "$ask" 2>"$errors" </dev/null); then
		jq -c --arg id "$(jq -r .id <<<"$answer" 2>/dev/null)" '.id = $id' <<<"$ask"
	else
		jq -c --arg error "$(tail -c 300 "$errors") " '.error = $error' <<<"$ask"
	fi
done
