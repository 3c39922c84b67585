#!/bin/sh
# Draws the output of a command as an image of a terminal: terminal.sh stride-perf write bw --loopback > terminal.svg
{
    printf '$ %s\n' "$*"
    "$@" 2>&1
} | fold -s -w 112 | sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g' | awk '
{ lines[NR] = $0 }
END {
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"960\" height=\"%d\" ", NR * 19 + 30
    print "font-family=\"ui-monospace, DejaVu Sans Mono, monospace\" font-size=\"14\" fill=\"#e6e9ed\">"
    print "<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#14171b\"/>"
    for (line = 1; line <= NR; line++)
        printf "<text x=\"16\" y=\"%d\" xml:space=\"preserve\">%s</text>\n", line * 19 + 10, lines[line]
    print "</svg>"
}'
