#!/usr/bin/env bash
# Makes sure of the programs that `make` needs beyond Debian's python3; installs what is missing where that is allowed
# (root on Debian or Ubuntu), else says what to install.
# usage: tools.sh venv                 python3 can make virtual environments; called by every target
#        tools.sh test                 all that a test needs: a C compiler with Python's headers, JDK 17 and Maven, strace,
#                                      mount and mkfs, Chromium, promtool, kcat, node and npm, ssh-keygen, systemd-analyze,
#                                      systemd-nspawn and debootstrap. Tests whose program is missing are skipped, but fail
#                                      where CI is set
set -euo pipefail
python=${PYTHON:-python3}

can_make_venvs() { "$python" -c 'import ensurepip, venv' 2> /dev/null; }
has_compiler() { command -v "${CC:-gcc}" > /dev/null; }
has_python_headers() {
  "$python" -c 'import pathlib, sys, sysconfig
sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())'
}
has_jdk() { command -v java > /dev/null && java --list-modules 2> /dev/null | grep -q '^jdk\.compiler@'; }
has_maven() { command -v mvn > /dev/null; }
has() { PATH=$PATH:/usr/sbin:/sbin command -v "$1" > /dev/null; }

install() { # install PACKAGE...: 0 if it was done
  if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
    echo "missing here; on Debian: sudo apt-get install $*" >&2
    return 1
  fi
  echo "installing $*" >&2
  export DEBIAN_FRONTEND=noninteractive
  apt-get install -y -qq --no-install-recommends "$@" > /dev/null 2>&1 && return
  apt-get update -qq >&2 # the lists of a fresh image are empty or stale
  apt-get install -y -qq --no-install-recommends "$@" >&2
}

case ${1:-} in
  venv)
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
      echo "logmend needs Python 3.11 or newer; $python is $("$python" --version 2>&1 | head -1). Set PYTHON=..." >&2
      exit 1
    fi
    can_make_venvs || install python3-venv
    ;;
  test)
    packages=()
    has_compiler || packages+=(gcc libc6-dev)
    has_python_headers || packages+=(python3-dev)
    has_jdk || packages+=(openjdk-17-jdk-headless)
    has_maven || packages+=(maven)
    has strace || packages+=(strace)
    has setpriv && has losetup && has nsenter || packages+=(util-linux mount)
    has mkfs.ext4 || packages+=(e2fsprogs)
    has mkfs.xfs || packages+=(xfsprogs)
    has chromium || has chromium-browser || has google-chrome || packages+=(chromium)
    has promtool || packages+=(prometheus)
    has kcat || packages+=(kcat)
    has node || packages+=(nodejs)
    has npm || packages+=(npm)
    has ssh-keygen || packages+=(openssh-client)
    has systemd-analyze || packages+=(systemd)
    has systemd-nspawn || packages+=(systemd-container)
    has debootstrap || packages+=(debootstrap)
    if [ ${#packages[@]} -gt 0 ] && ! install "${packages[@]}"; then
      echo "going on without them" >&2
    fi
    ;;
  *)
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
