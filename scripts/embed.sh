#!/bin/sh
# Writes an assembly file that holds the named files and a sorted table of them (harness/core/embed.h).
#   embed.sh FILE... > build/embed.S
set -eu
export LC_ALL=C
files=$(printf '%s\n' "$@" | sort)
echo '    .section .rodata'
n=0
for f in $files; do
    printf '.Lpath%d: .asciz "%s"\n' "$n" "$f"
    printf '.Ldata%d: .incbin "%s"\n.Lend%d: .byte 0\n' "$n" "$f" "$n"
    n=$((n + 1))
done
echo '    .section .data.rel.ro,"aw"'
echo '    .balign 8'
echo '    .globl embedded_table'
echo 'embedded_table:'
i=0
while [ "$i" -lt "$n" ]; do
    printf '    .quad .Lpath%d, .Ldata%d, .Lend%d - .Ldata%d\n' "$i" "$i" "$i" "$i"
    i=$((i + 1))
done
echo '    .section .rodata'
echo '    .balign 8'
echo '    .globl embedded_count'
printf 'embedded_count: .quad %d\n' "$n"
echo '    .section .note.GNU-stack,"",@progbits'
