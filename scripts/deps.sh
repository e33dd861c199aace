#!/usr/bin/env bash
# The Debian packages that assay needs, and only those that are missing.
#   deps.sh [--test] [--yes]    prints what is missing; installs it with --yes (root or sudo)
set -eu
build=(build-essential pkg-config git ca-certificates libcurl4-openssl-dev libsqlite3-dev libjansson-dev libhwloc-dev libsodium-dev
       libssl-dev libmicrohttpd-dev libpcre2-dev libutf8proc-dev)
tests=(libcriterion-dev python3 python3-cryptography python3-h2 curl jq sqlite3 man-db)
yes=0 want=("${build[@]}")
for a in "$@"; do
    case $a in
    --yes) yes=1 ;;
    --test) want+=("${tests[@]}") ;;
    *) echo "deps.sh: unknown option '$a'; known are: --test, --yes" >&2; exit 2 ;;
    esac
done
missing=()
for p in "${want[@]}"; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing+=("$p")
done
[ ${#missing[@]} -gt 0 ] || exit 0
echo "missing: ${missing[*]}"
[ $yes = 1 ] || { echo "install them with: scripts/deps.sh --yes"; exit 1; }
sudo=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "deps.sh: not root and no sudo" >&2; exit 3; }
    sudo=sudo
fi
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq || true # a stale list may still do
$sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
