// Prints the pages of lists, each on a line.
for (let page of process.argv.slice(2)) {
  while (page) {
    const answer = await fetch(page);
    console.log(await answer.text());
    const link = /<([^>]*)>; rel="next"/.exec(answer.headers.get("Link"));
    page = link && new URL(link[1], page);
  }
}
