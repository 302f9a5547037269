// What has changed is put in its place. What the reader has opened, selected and scrolled stays.
const parts = ["clients", "latest"];
const shown = Object.fromEntries(parts.map((id) => [id, document.getElementById(id).innerHTML]));

function show(next) {
	for (const id of parts) {
		const old = document.getElementById(id), now = next.getElementById(id);
		if (shown[id] === now.innerHTML) continue;
		shown[id] = now.innerHTML;
		const focused = document.activeElement?.closest?.("details")?.id;
		for (const details of now.querySelectorAll("details")) {
			const was = document.getElementById(details.id);
			if (was) details.open = was.open;
		}
		old.replaceChildren(...now.childNodes);
		if (focused) document.getElementById(focused)?.querySelector("summary").focus();
	}
}

setInterval(() => {
	if (document.hidden || !getSelection().isCollapsed) return;
	const request = new XMLHttpRequest(); // which makes a document of HTML without a sink of Trusted Types
	request.open("GET", location.pathname);
	request.responseType = "document";
	request.onload = () => { if (request.status === 200) show(request.response) };
	request.send();
}, 2000);
