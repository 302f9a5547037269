#!/usr/bin/env bash
# A client for the storefront, one file to copy, to run or to source. It needs Bash 4.4 or later, curl 7.84,
# jq 1.6, and GNU's coreutils, sed and flock, which a Linux has. It keeps the rules of docs/wire.md, "How to retry
# well".
#
#   export STOREFRONT_URL=http://localhost:8080
#   export STOREFRONT_JOURNAL=orders            # a folder
#   ./storefront.sh order 'basket 17' teapot 2  # prints one order, even if this is killed
#   ./storefront.sh order 'basket 17'           # goes on with it
#   ./storefront.sh order 18 teapot 2 '{"note":"for Ada"}'  # with fields, which are an object of JSON
#   ./storefront.sh pending                     # prints the names of drafts of which nobody knows what became,
#                                               # first the one whose last try is the longest ago
#   ./storefront.sh forget 'basket 17'          # when the program has the order in its own books
#   ./storefront.sh find-order 'basket 17'      # asks the shop what became of it, and sends nothing: prints the
#                                               # order, or nothing if there is none so far: a try may still
#                                               # create it until the shop has taken orders for some minutes
#   ./storefront.sh orders [LIMIT]              # prints a line of JSON for each, the newest first
#   ./storefront.sh get-order ID
#   ./storefront.sh users [LIMIT]               # prints a line of JSON for each
#   ./storefront.sh widgets [LIMIT]
#   ./storefront.sh product ID [MAX_AGE]
#
# The status is 0 if all went well; 3 if the service refused, and no try has created anything; 4 if something
# in front of the service has answered, or changes what is sent, and the order may exist; 5 if it is unknown
# whether it does. After 4 and 5, go on with it later. 2 is wrong usage, and 1 another error, such as a full disk.
#
# STOREFRONT_PATIENCE is for how many seconds a call goes on with an order, twelve hours by default.
# It is sent once at least. STOREFRONT_CONFIG is a file of options of curl, such as header = "Authorization: …",
# and STOREFRONT_ACCOUNT says whose sign-in that is, by a name that stays. A name of an order belongs to the
# URL and the account: what the journal has of others is left alone. STOREFRONT_ON_TRY is a command, or a
# function, that is called after each try with its method, path, status, seconds and key, and with the answer as
# its standard input; what it prints goes to standard error. The status is 0 if no answer came.

storefront() (
	# Whoever has sourced this may have set options and traps. Without pipefail, a program that fails
	# would say that there is nothing.
	set +aCeEfkTu +o posix -o pipefail
	trap - DEBUG ERR RETURN
	shopt -u nocasematch
	shopt -u localvar_inherit 2>/dev/null # which Bash 4.4 does not have
	LC_ALL=C IFS=$' \t\n'
	# There may also be variables of the names that are used below. If one is readonly, all ends.
	local account ahead answer ask asked began begun body changed code coding command cursor cuts date dir doubted \
		end entry exit fields file format found goes good head id item items key last lifetime limit line lock \
		made mask max method most ms name next now open ours outcome page path patience port qty query refused \
		retry_after right same seconds seen set shop size smaller state status text try unfit url why wrong \
		wrong_clock || exit 1
	try=40 lifetime=$((23 * 3600)) ahead=3600 most=$((1 << 20)) ours=urn:problem-type:storefront:
	set=1767225600 # 2026: a clock that says an earlier time was not set since the machine was started
	wrong_clock='a clock was wrong when this draft was made or sent, so its age is unknown'
	ask='ask the shop by its key whether the order exists (find-order), and then forget the draft'
	command=${1-} status='' code='' answer='' retry_after='' limit=250 key='' lock=''
	account=${STOREFRONT_ACCOUNT-} mask='' coding='' unfit='' wrong='' smaller='' found=''
	shift
	# A function of jq, which makes the entry of a line of _storefront_entry, or null.
	entry='def entry: .[index("\t") + 1:] | (fromjson? // null) | select(type == "object" and .version == 1 and
		keys - ["version", "shop", "account", "name", "key", "body", "made", "begun", "order", "refused"] == [] and
		all(.shop, .account, .name, .key; type == "string" and (contains("\n") | not)) and
		(.key | test("^[!#-+\\--\\[\\]-~]{1,255}$")) and
		all(.made, if has("begun") then .begun else .made end; type == "number" and . >= 0 and . < 1e12) and
		(.order as $order | .body | strings | (fromjson? // null) | type == "object" and
			(.item | type == "string") and (.qty | type == "number" and . == floor and fabs < 9007199254740992) and
			((has("fields") | not) or (.fields | type == "object")) and
			($order == null or ($order | type == "object" and (.id | type == "string" and . != "")) and
				.item == $order.item and .qty == $order.qty and .fields == $order.fields))) // null;'
	page='def id: type == "string" and . != "";
		(.data | type == "array" and all(type == "object" and (.id | id))) and
		(.next | id) == (.next != null) and .has_more == (.next != null)'
	case $command:$# in
	order:[134] | find-order:1 | forget:1 | pending:0 | orders:[01] | get-order:1) ;;
	users:[01] | widgets:[01] | product:[12]) ;;
	*)
		_storefront_fail 2 'usage: storefront.sh order NAME [ITEM QTY [FIELDS]], find-order NAME, forget NAME, pending,' \
			'orders [LIMIT], get-order ID, users [LIMIT], widgets [LIMIT] or product ID [MAX_AGE]'
		;;
	esac
	: "${STOREFRONT_URL:?is the URL of the shop}"
	local port url='^([Hh][Tt][Tt][Pp][Ss]?)://([^][:space:]/?#@\:[]+|\[[0-9A-Fa-f:.]+])(:([0-9]{1,5}))?(/[^[:space:]?#\]*)?$'
	[[ $STOREFRONT_URL =~ $url ]] && port=$((10#0${BASH_REMATCH[4]})) &&
		((!${#BASH_REMATCH[3]} || port > 0 && port < 65536)) ||
		_storefront_fail 2 'STOREFRONT_URL is http(s)://host:port/path, without a user, ? and #'
	shop=${BASH_REMATCH[1],,}://${BASH_REMATCH[2],,} path=${BASH_REMATCH[5]} # in one form, as entries have it
	[[ ${shop%%:*}:$port =~ ^(http:80|https:443|https?:0)$ ]] || shop+=:$port
	while [[ $path == */ ]]; do path=${path%/}; done
	shop+=$path
	_storefront_utf8 "$*"$'\n'"$account"$'\n'"$shop" || _storefront_fail 2 'an argument is not UTF-8'
	patience=120
	case $command in
	order | forget)
		[[ $1$account != *$'\n'* ]] || _storefront_fail 2 'a name is one line, and so is an account'
		patience=${STOREFRONT_PATIENCE:-43200}
		;;
	esac
	_storefront_"${command//-/_}" "$@"
)

_storefront_order() {
	local name=$1 item=${2-} qty=${3-} fields=${4-} asked='' key body made begun open=1 cuts=3 refused
	local file line now end text='' doubted='' changed why state=draft
	_storefront_now end $patience
	if (($# > 1)); then
		[[ $qty =~ ^[1-9][0-9]{0,15}$ ]] && ((qty < 1 << 53)) || _storefront_fail 2 "$qty is no quantity"
		asked=$(jq -cn --arg item "$item" --argjson qty "$qty" '{item: $item, qty: $qty}') || exit 1
	fi
	if (($# > 3)); then
		# jq 1.6 reads 256 levels, and some are for what is around them.
		jq -en --arg fields "$fields" '$fields | fromjson | type == "object"
			and ("[[[[\($fields)]]]]" | fromjson | true)' >/dev/null 2>&1 ||
			_storefront_fail 2 "the fields are no object of JSON: ${fields:0:1000}"
		asked=${asked%\}},\"fields\":$fields}
	fi
	_storefront_lock "$name"
	if [[ -e $file || -L $file ]]; then
		_storefront_load
		[[ ! $asked ]] || _storefront_same . "$asked" "$body" || {
			(($? == 1)) || _storefront_fail 1 "jq has failed"
			_storefront_fail 2 "$name is another order: $body"
		}
		# Who wrote it may have been killed before it was on the disk.
		sync -- "${file%/*}" "${file%/*}/.." || _storefront_fail 1 "the journal cannot be synced"
		case $state in
		order) _storefront_kept order && exit || exit 1 ;;
		refused)
			if ! _storefront_sendable; then
				answer=$(_storefront_kept refused)
				_storefront_fail 3 "Refused: not sent again: $(_storefront_last)"
			fi
			open=0 state=draft
			_storefront_write # it is open until the next answer
			;;
		esac
		touch -c -- "$file" # others come first in pending
	else
		[[ $asked ]] || _storefront_fail 2 "there is no draft of $name"
		body=$asked
		key=$(od -An -v -N16 -tx1 /dev/urandom)
		key=${key//[[:space:]]/}
		((${#key} == 32)) || _storefront_fail 1 'no random key'
		_storefront_now made 0
		begun=$made # since when it may have been sent; 0 if it is not sent any more, as a clock was wrong
		open=0
		_storefront_sendable || _storefront_fail 5 "Unknown: $why"
		_storefront_write
	fi
	while _storefront_sendable; do
		_storefront_held
		_storefront_send /v1/orders -X POST --data-binary "$body" -H 'Content-Type: application/json' \
			-H "Idempotency-Key: $key"
		if [[ $status == 201 ]] && _storefront_same '{item, qty, fields}' "$answer" "$body"; then
			answer=${answer//[$'\r\n']/ }
			_storefront_write order && printf '%s\n' "$answer"
			exit
		fi
		if [[ $wrong && ! $doubted ]]; then # no later process sends it
			doubted=1 text=''
			_storefront_write # now, as this one may be killed
		fi
		refused=0
		if [[ $code && $status == 4?? && $status != 409 && $code != idempotency-key-reused ]]; then
			refused=1 # by the service, which so has created nothing
		else
			((open += 1))
		fi
		why='' changed='' # on its way
		[[ ! $doubted ]] || why="; $wrong_clock: $ask"
		! _storefront_changed '' || changed=1
		if _storefront_again || [[ ($changed || $code == malformed-body) && $((cuts--)) -gt 0 ]]; then
			_storefront_wait && continue
			[[ $changed ]] || _storefront_fail 5 "Unknown: no final answer$why: $(_storefront_last)"
		fi
		if [[ $changed ]]; then
			_storefront_fail 4 "Blocked: something in front of the service changes requests$why: $(_storefront_last)"
		elif ((refused && !open)); then
			_storefront_write refused
			_storefront_fail 3 "Refused: $(_storefront_last)"
		elif [[ $code && $status == 4?? ]]; then
			_storefront_fail 5 "Unknown: refused, but the key may have an order$why: $(_storefront_last)"
		fi
		_storefront_fail 4 "Blocked: something in front of the service has answered$why: $(_storefront_last)"
	done
	_storefront_fail 5 "Unknown: $why: $(_storefront_last)"
}

# _storefront_sendable says in why if a draft is not sent any more. One from ahead would seem to be new later.
_storefront_sendable() {
	local now
	_storefront_now now 0
	why="$wrong_clock: $ask"
	if ((begun && now < set)); then
		TZ=UTC0 printf -v why 'the clock of this machine is wrong (%(%FT%TZ)T): set it, and call again' "$now"
	elif ((begun && (made > begun ? made : begun) > now + ahead)); then
		begun=0 text=''
		[[ $state == refused ]] || _storefront_write
	elif ((begun && now >= begun + lifetime)); then
		why="too old to be sent again: $ask"
	else
		((begun))
		return
	fi
	return 1
}

# _storefront_entry prints the name of a file, without its folder, and its line.
_storefront_entry() {
	local line=''
	# A pipe would be waited for, and a long file fill the memory.
	[[ ! -f $1 || -L $1 || ! -r $1 ]] || IFS= read -r -d '' -n 1000000 line <"$1"
	[[ $line != *$'\n'?* ]] || line=''
	printf '%s\t%s\n' "${1##*/}" "${line%$'\n'}"
}

# _storefront_load sets line, key, body, made, begun and state from the file of a name.
_storefront_load() {
	local fields=()
	line=$(_storefront_entry "$file")
	! _storefront_utf8 "$line" || mapfile -d '' -t fields < <(_storefront_text <<<"$line" |
		jq -j --arg shop "$shop" --arg account "$account" --arg name "$name" "$entry"' entry | objects |
		select(.shop == $shop and .account == $account and .name == $name) |
		.key, .body, (.made, .begun // .made | floor),
		if .order then "order" elif .refused then "refused" else "draft" end | "\(.)\u0000"')
	((${#fields[@]} == 5)) ||
		_storefront_fail 1 "$file is no entry of $name, or one that another version has to go on with"
	key=${fields[0]} body=${fields[1]} made=${fields[2]} begun=${fields[3]} state=${fields[4]}
}

# _storefront_kept prints the order in the line of an entry, or its refusal.
_storefront_kept() { _storefront_jq -c ".$1" <<<"${line#*$'\t'}"; }

_storefront_find_order() {
	local name=$1 dir file line body made begun state query found
	_storefront_dir
	_storefront_file "$name"
	[[ -e $file ]] || _storefront_fail 2 "there is no draft of $name"
	_storefront_load
	[[ $state != order ]] || { _storefront_kept order && exit || exit 1; }
	query=$(jq -rn --arg key "\"$key\"" '$key | @uri') || exit 1
	found=_storefront_found
	_storefront_read "/v1/orders?idempotency_key=$query" "$page and .has_more == false and (.data | length < 2)"
	_storefront_jq -c '.data[]' <<<"$answer"
}

# _storefront_found reports whether a page has none but the order of the draft.
_storefront_found() {
	[[ $(jq '.data | length' <<<"$answer") == 0 ]] ||
		_storefront_same '{item, qty, fields}' "$(_storefront_jq -c '.data[]' <<<"$answer")" "$body"
}

_storefront_pending() {
	local dir file line name
	_storefront_dir
	# Where two files have a name, one is a copy. To look at the hash of each would take long. ls ends with 1 if
	# a file has gone before it looks at it.
	{ ls -Atr --quoting-style=escape -- "$dir" || (($? == 1)); } | while IFS= read -r file; do
		[[ $file != *.json ]] || _storefront_entry "$dir/$file"
	done | _storefront_text | jq -nr --arg shop "$shop" --arg account "$account" "$entry"'
		[inputs | .[:index("\t")] as $file | entry |
			select(. == null or .shop == $shop and .account == $account) |
			{file: $file, name: .name, open: (.order or .refused | not)}] |
		(map(.name | strings) | group_by(.) | map({key: .[0], value: length}) | from_entries) as $count | .[] |
		select(.open) | if .name == null then .file
		else .file + "\t" + (if $count[.name] == 1 then "=" else "\t" end) + .name end' | while IFS= read -r line; do
		name=${line#"${line%%$'\t'*}"} line=${line%%$'\t'*}
		[[ $name != $'\t\t'* ]] || _storefront_file "${name:2}"
		if [[ $name == $'\t='* || $name == $'\t\t'* && $file == "$dir/$line" ]]; then
			printf '%s\n' "${name:2}" || exit 1
		else
			printf 'the journal leaves out %s, which is no entry, or of another version\n' "$line" >&2
		fi
	done || _storefront_fail 1 "the journal cannot be read, or its drafts cannot be printed"
}

_storefront_forget() {
	local file
	_storefront_lock "$1"
	_storefront_held
	rm -f -- "$file" && sync -- "${file%/*}" && rm -f -- "${file%.json}.lock" || exit 1
}

_storefront_orders() { _storefront_walk /v1/orders after "${1:+limit=$1}"; }
_storefront_users() { _storefront_walk /v1/users after "${1:+limit=$1}"; }
_storefront_widgets() { _storefront_walk /v2/widgets start "limit=${1:-50}"; }

_storefront_walk() {
	local query=$3 cursor='' next items=() # nothing is printed before the end: a part is not the list
	local line last='""' size=${3#limit=} goes='<' # IDs go on in the sequence of their bytes
	local -A seen=()                             # cursors since the last item
	[[ $1 != /v1/orders ]] || goes='>'
	while :; do
		next=${query:+limit=$size}${cursor:+${query:+&}$2=$cursor}
		[[ $size == 1 ]] && smaller='' || smaller=1
		_storefront_read "$1${next:+?$next}" "$page and ([$last, .data[].id] | map(select(. != \"\")) as \$ids |
			all(range(1; \$ids | length); \$ids[. - 1] $goes \$ids[.]))"
		if [[ $unfit ]]; then
			[[ $size =~ ^[0-9]{1,9}$ ]] || size=50
			query=limit size=$((10#$size > 1 ? 10#$size / 2 : 1))
			continue
		fi
		next=$(jq -r '.next // empty' <<<"$answer") || exit 1
		[[ ! $next || ! ${seen[:$next]-} ]] || _storefront_fail 4 "Blocked: the list goes round in a circle"
		line=$(_storefront_jq -c '.data[]' <<<"$answer") || exit 1
		if [[ $line ]]; then
			items+=("$line") seen=()
			last=$(jq -c '.data[-1].id' <<<"$answer") || exit 1
		fi
		[[ $next ]] || break
		cursor=$next seen[:$next]=1
	done
	((!${#items[@]})) || printf '%s\n' "${items[@]}"
}

_storefront_get_order() { _storefront_item /v1/orders "$1"; }

_storefront_product() {
	[[ ${2-} =~ ^[0-9]*$ ]] || _storefront_fail 2 "$2 is no number of seconds"
	_storefront_item /v1/products "$1" ${2:+-H "Cache-Control: max-age=$2"}
}

_storefront_item() {
	case $2 in '' | . | .. | /) _storefront_fail 2 'no URL leads to what has this ID' ;; esac
	local id
	id=$(jq -rn --arg id "$2" '$id | @uri') || exit 1
	_storefront_read "$1/$id" ".id == $(jq -n --arg id "$2" '$id')" "${@:3}"
	_storefront_jq -c . <<<"$answer"
}

# _storefront_read asks for a path until the answer is a JSON object that is right, and what found says, or, if
# what is read can be made smaller, one that does not fit.
_storefront_read() {
	local path=$1 right=$2 now end why=''
	_storefront_now end $patience
	shift 2
	limit=250
	while :; do
		_storefront_send "$path" "$@"
		[[ $status == 200 ]] && _storefront_is "$right" && ${found:-:} && return
		[[ ! $unfit || ! $smaller ]] || return 0
		! _storefront_changed "$path" ||
			_storefront_fail 4 "Blocked: something in front of the service has changed GET $path: $(_storefront_last)"
		if [[ $status == 200 && $coding || $status != 200 && $status != 304 ]] && ! _storefront_again; then
			[[ $path != /v1/orders* || ! $code =~ ^(not-found|method-not-allowed)$ ]] ||
				why='this shop does not let clients read orders: '
			[[ $code ]] && _storefront_fail 3 "Refused: ${why}GET $path: $(_storefront_last)"
			_storefront_fail 4 "Blocked: GET $path: $(_storefront_last)"
		fi
		_storefront_wait || _storefront_fail 5 "Unknown: no final answer to GET $path: $(_storefront_last)"
	done
}

# _storefront_send sends a request once. The status is 0 if no answer came, or a part of one. The file with
# the lock stays open in curl: the lock lasts as long as the try, whatever becomes of this shell.
_storefront_send() {
	local path=$1 method=GET good=200 max=$((16 * most)) head exit began now date
	local format='%{stderr}\n%{http_code}|%{exitcode}|%header{date}|%header{content-encoding}|%header{retry-after}'
	shift
	[[ ${1-} != -X ]] || method=$2 good=201 max=$most
	_storefront_now began 0
	{ answer=$({
		head=$({
			curl -q -g -A storefront.sh ${STOREFRONT_CONFIG:+-K "$STOREFRONT_CONFIG"} -s --no-location --retry 0 \
				--max-time $try -H 'Accept-Encoding: identity' -w "$format" "$@" "$shop$path" | head -c $max >&3
		} 2>&1)
		printf '\n%s' "${head##*$'\n'}"
	} 3>&1 2>/dev/null); } 2>/dev/null # Bash says that it leaves out null bytes
	head=${answer##*$'\n'} answer=${answer%$'\n'*} code='' unfit='' wrong=''
	IFS='|' read -r status exit date coding retry_after <<<"$head"
	_storefront_now now 0
	[[ ${coding,,} != identity ]] || coding=''
	# The clock of what is read may be that of a cache.
	[[ $method == POST &&
		$date =~ ^[A-Z][a-z]{2},\ ([0-9]{2}\ [A-Z][a-z]{2}\ [0-9]{4}\ [0-9]{2}:[0-9]{2}:[0-9]{2}\ GMT)$ ]] &&
		date=$(date -d "${BASH_REMATCH[1]}" +%s 2>/dev/null) &&
		((date < began - ahead || date > now + ahead)) && wrong=1
	if [[ $exit == 23 && $status != "$good" ]]; then # head has ended: it is too long, and its status is final
		answer=${answer:0:most}
	elif [[ $exit != 0 ]]; then
		# What is too long, or too slow also for something on the way that has a lower limit.
		[[ $status != 200 ]] || ((exit != 23 && exit != 28 && now - began < try / 4)) || unfit=1
		status=0 retry_after='' coding=''
		answer="no answer, curl's status is ${exit:-unknown}"
		[[ $exit != 23 ]] || answer="the answer is too long"
	fi
	((status < 400)) || code=$(jq -rs --arg ours $ours 'if length == 1 then .[0].type else 0 end |
		strings | select(startswith($ours)) | .[($ours | length):]' <<<"$answer" 2>/dev/null)
	[[ ${STOREFRONT_ON_TRY-} ]] || return
	( # without the lock, and with the program's umask
		[[ -z $lock ]] || exec {lock}>&-
		[[ -z $mask ]] || umask "$mask"
		$STOREFRONT_ON_TRY $method "$path" "$status" $((now - began)) "$key" <<<"$answer" >&2
	)
}

_storefront_again() {
	[[ $code != not-cached && ! ($status == 201 && $coding) &&
		($status =~ ^(0|201|408|409|429)$ || $status -ge 500 && $status != 501) ]]
}

# _storefront_changed reports whether the service refuses what only something on the way can have made of a request
# for a path. An order has none.
_storefront_changed() {
	local limit
	case $code in
	idempotency-key-missing | idempotency-key-invalid | unsupported-media-type | precondition-failed) ;;
	not-found | method-not-allowed) [[ $1 != /v1/orders* ]] ;;
	invalid-query)
		! _storefront_is '.errors | arrays | any(.parameter == "idempotency_key")' || return 1 # nobody has signed in
		[[ $1 =~ [?\&]limit=([^\&]*) ]] || return 0
		limit=${BASH_REMATCH[1]} # the program's, which may be wrong
		[[ $limit =~ ^[0-9]{1,9}$ ]] && limit=$((10#$limit)) || limit=0
		! _storefront_is ".errors | arrays | any(.parameter == \"limit\" and
			($limit < (.minimum // 1) or $limit > (.maximum // infinite)))"
		;;
	*) return 1 ;;
	esac
}

# _storefront_is reports whether the answer is one JSON object with a property.
_storefront_is() {
	jq -es "length == 1 and (.[0] | type == \"object\" and ($1))" <<<"$answer" >/dev/null 2>&1
}

# _storefront_same reports whether two texts are objects that a filter makes equal, and the first has an ID unless
# the filter is ".": proxies have mixed up answers. Numbers are compared by value, however many digits they have.
# The status is 1 only if they are two other texts.
_storefront_same() {
	printf '%s\n' "$2" "$3" | _storefront_mark | jq -es 'def exact: if type == "string" and startswith("\ufdd0") then
			.[1:] | capture("^(?<sign>-?)(?<whole>[0-9]+)([.](?<part>[0-9]+))?([eE][+]?(?<power>-?[0-9]+))?$") |
			(.part // "") as $part | .sign as $sign | (.power // "0" | tonumber) as $power |
			.whole + $part | capture("^0*(?<digits>([0-9]*[1-9])?)(?<zeros>0*)$") | if .digits == "" then "\ufdd0"
			else "\ufdd0\($sign)\(.digits)e\($power + (.zeros | length) - ($part | length))" end else . end;
		if length == 2 then . else error end | all(.[]; type == "object") and
		("'"$1"'" == "." or (.[0].id | type == "string" and . != "")) and
		(map('"$1"' | walk(exact)) | .[0] == .[1])' >/dev/null 2>&1
}

# _storefront_jq calls jq with numbers as they are written, which jq would round.
_storefront_jq() { _storefront_mark | jq "$@" | LC_ALL=C sed -E 's/"\xEF\xB7\x90([0-9.eE+-]*)"/\1/g' || return 1; }

# _storefront_mark makes each number of JSON a string that begins with U+FDD0. Control characters are in no JSON.
_storefront_mark() {
	LC_ALL=C sed -E 's/("([^"\\]|\\.)*")|(-?[0-9][0-9.eE+-]*)/\1\x01\3\x02/g; s/\x01\x02//g
		s/\x01([^\x02]*)\x02/"\xEF\xB7\x90\1"/g'
}

# _storefront_wait waits before the next try, and reports whether there is time for it.
_storefront_wait() {
	local seconds=0 ms=$(((RANDOM << 15 | RANDOM) % (limit + 1)))
	if [[ $retry_after =~ ^[0-9]+$ ]]; then # or it is a date, or anything: never evaluate what a server sends
		((${#retry_after} > 9)) && seconds=3600 || seconds=$((10#$retry_after))
		((seconds <= 3600)) || seconds=3600
	fi
	((limit = limit < 30000 ? 2 * limit : 60000, ms += 1000 * seconds))
	_storefront_now now $(((ms + 999) / 1000))
	((now <= end)) || return
	( # without the lock, as sleep may outlive this shell
		[[ -z $lock ]] || exec {lock}>&-
		sleep "$(printf '%d.%03d' $((ms / 1000)) $((ms % 1000)))"
	)
}

# _storefront_dir sets dir to the folder, in which a file that is not seen is none. What is written there is
# for this user alone: an entry has the key and an address, and who may read the file of a lock can hold it.
_storefront_dir() {
	dir=${STOREFRONT_JOURNAL:?is the folder of the journal}
	mkdir -p -m 700 -- "$dir" && [[ -x $dir ]] || _storefront_fail 1 "the journal cannot be opened"
	mask=$(umask) && umask 077 || exit 1
}

# _storefront_file sets file to that of a name.
_storefront_file() {
	file=$(printf '%s\n%s\n%s' "$shop" "$account" "$1" | sha256sum) || exit 1
	file=$dir/${file%% *}.json
}

# _storefront_lock sets file, and returns when this process has the name. The lock is the kernel's, and goes
# with the process and its curl.
_storefront_lock() {
	local dir
	_storefront_dir
	_storefront_file "$1"
	while exec {lock}>>"${file%.json}.lock" || exit 1; do
		flock -w "$patience" "$lock" || {
			(($? == 1)) || _storefront_fail 1 "the journal cannot be locked"
			_storefront_fail 5 "Unknown: another process is sending this order"
		}
		[[ ${file%.json}.lock -ef /proc/self/fd/$lock ]] && break
		exec {lock}>&- # it was forgotten meanwhile
	done
}

# _storefront_utf8 reports whether a text is UTF-8. jq would put U+FFFD in the place of what is not, which is
# another item, or the name of another order.
_storefront_utf8() {
	[[ $1 == *[$'\x80'-$'\xff']* ]] || return 0
	local text=${1//[$'\x01'-$'\x1f']/ } same
	same=$(_storefront_text <<<"$text" | jq -r .) || _storefront_fail 1 "jq has failed"
	[[ $same == "$text" ]]
}

# _storefront_text makes each line a string of JSON. A line that is none, jq 1.6 cuts after 4095 bytes, also within a
# character, and arguments are not as long.
_storefront_text() { LC_ALL=C sed 's/[\\"]/\\&/g; s/\t/\\t/g; s/\r/\\r/g; s/[\x01-\x1f]/\\u0001/g; s/.*/"&"/'; }

# _storefront_held fails if the lock is not where others look: the folder may have been moved or replaced.
_storefront_held() {
	[[ ${file%.json}.lock -ef /proc/self/fd/$lock ]] ||
		_storefront_fail 5 "Unknown: the lock has gone from the folder of the journal: $(_storefront_last)"
}

# _storefront_write returns when the draft is on the disk, and that the answer is its order, or has refused it.
_storefront_write() {
	local outcome=${1-}
	_storefront_held
	[[ $text ]] || text=$(jq -cn --arg shop "$shop" --arg account "$account" --arg name "$name" --arg key "$key" \
		--arg body "$body" --argjson made "$made" --argjson begun "$((doubted ? 0 : begun))" '{version: 1, shop: $shop,
			account: $account, name: $name, key: $key, body: $body, made: $made, begun: $begun}') &&
		printf '%s%s}\n' "${text%\}}" "${outcome:+,\"$outcome\":${answer//[$'\r\n']/ }}" >"$file.tmp" &&
		sync -- "$file.tmp" && mv -fT -- "$file.tmp" "$file" && sync -- "${file%/*}" "${file%/*}/.." ||
		_storefront_fail 1 "the journal cannot be written"
}

# _storefront_now sets a variable to the time, and as many seconds more.
_storefront_now() { printf -v "$1" '%(%s)T' -1 && printf -v "$1" '%d' $(($1 + $2)); }
_storefront_last() {
	local last=${answer:0:1000}
	[[ ! $coding ]] || last="with the content coding $coding"
	printf '%s' "${key:+the order with the key $key: }${status:+$status: }$last"
}
_storefront_fail() {
	printf '%s\n' "${*:2}" >&2
	exit "$1"
}

[[ ${BASH_SOURCE[0]} != "$0" ]] || storefront "$@"
