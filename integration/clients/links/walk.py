# Prints the pages of lists, each on a line.
import re, sys, urllib.parse, urllib.request

for page in sys.argv[1:]:
    while page:
        with urllib.request.urlopen(page) as answer:
            print(answer.read().decode())
            link = re.search('<([^>]*)>; rel="next"', ", ".join(answer.headers.get_all("Link", [])))
        page = link and urllib.parse.urljoin(page, link[1])
