# Shared by the tests of other systems.

skip() {
    echo "skipped: $1"
    exit 77
}

# can_make RELEASE: otherwise the test is skipped.
can_make() {
    [ "$(id -u)" -eq 0 ] || skip "a root is made by root alone"
    command -v debootstrap >/dev/null 2>&1 || skip "debootstrap is not installed"
    [ -e "/usr/share/debootstrap/scripts/$1" ] || skip "debootstrap does not know $1"
}

# make_root RELEASE DIR: a bare root of a Debian release, from the package registry of this host's
# apt.
make_root() {
    # shellcheck disable=SC2016 # apt's own dollars
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Component: main' |
        head -n 1)
    [ -n "$mirror" ] || skip "apt knows no registry of Debian's packages here (apt-get update?)"
    mkdir -p "$2"
    log=$(mktemp)
    debootstrap --variant=minbase "$1" "$2" "$mirror" >"$log" 2>&1 || {
        tail -n 5 "$log" >&2
        exit 1
    }
    rm -f "$log"
    chmod 755 "$2" # folders from mktemp are accessible to root only, and other users need this one
    apt-config dump Acquire::http::Proxy >"$2/etc/apt/apt.conf.d/90proxy"
}
