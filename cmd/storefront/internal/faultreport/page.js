// What has changed is put in its place. What the reader has opened, selected and scrolled stays.
const parts = ["tally", "clients", "latest"];
const shown = Object.fromEntries(parts.map((id) => [id, document.getElementById(id).innerHTML]));

const state = document.getElementById("state");

function show(next) {
	state.textContent = "";
	for (const id of parts) {
		const old = document.getElementById(id), now = next.getElementById(id);
		if (shown[id] === now.innerHTML) continue;
		shown[id] = now.innerHTML;
		const active = document.activeElement, focused = active?.closest?.("details")?.id;
		const what = active?.className === "scroll" ? ".scroll" : "summary";
		const tops = [...old.querySelectorAll(".scroll")].map((e) => [e.parentNode.id, e.scrollTop]);
		for (const details of now.querySelectorAll("details")) {
			const was = document.getElementById(details.id);
			if (was) details.open = was.open;
		}
		old.replaceChildren(...now.childNodes);
		for (const [id, top] of tops) document.getElementById(id)?.querySelector(".scroll").scrollTo(0, top);
		if (focused) document.getElementById(focused)?.querySelector(what).focus();
	}
}

setInterval(() => {
	if (document.hidden || !getSelection().isCollapsed) return;
	const request = new XMLHttpRequest(); // which makes a document of HTML without a sink of Trusted Types
	request.open("GET", location.pathname);
	request.responseType = "document";
	request.onload = () => { if (request.status === 200) show(request.response) };
	request.onerror = () => { state.textContent = "The program has ended; this is the last that it said." };
	request.send();
}, 2000);
