#!/usr/bin/env bash
# A client for the storefront, to copy. docs/wire.md has the rules that it follows.

key=$(cat /proc/sys/kernel/random/uuid) # to be kept with the order, before it is sent
for ((pause = 250, end = SECONDS + 12 * 3600; SECONDS < end; pause = pause < 30000 ? 2 * pause : 60000)); do
	answer=$(curl -s --max-time 40 -w '\n%{http_code} %header{retry-after}' http://localhost:8080/v1/orders \
		-H "Idempotency-Key: $key" -H 'Content-Type: application/json' -d '{"item":"teapot","qty":2}') || answer=$'\n0'
	read -r status wait <<<"${answer##*$'\n'}"
	answer=${answer%$'\n'*}
	case $status in
	201) [[ $answer =~ ^\{.*\"id\"\ *:\ *\"([^\"]+)\".*\}$ ]] && echo "created ${BASH_REMATCH[1]}" && exit ;;
	0 | 408 | 409 | 429 | 50[^1] | 5[^0]?) ;;
	*) echo "the order with the key $key: $status: $answer" >&2 && exit 1 ;;
	esac
	[[ $wait =~ ^[1-9][0-9]*$ ]] || wait=0 # a date, or anything: never evaluate what a server sends
	((${#wait} > 4 || wait > 3600)) && wait=3600
	sleep "$((wait + RANDOM % (pause / 1000 + 1))).$((RANDOM % 900 + 100))"
done
echo "the order with the key $key: no answer" >&2
exit 1
