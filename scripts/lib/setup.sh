# Shared by scripts/demo, scripts/test and .ci/run: installs what the build needs and fetches the
# model. Sourced, not run. Everything is skipped when it is there already.

PACKAGES=(
  g++ cmake ninja-build ccache pkg-config git ca-certificates
  libabsl-dev libfmt-dev libspdlog-dev nlohmann-json3-dev libcli11-dev
  libpcre2-dev libutf8proc-dev libssl-dev libarchive-dev libxxhash-dev
  libgrpc++-dev libgrpc-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc
  libboost1.81-dev libgtest-dev libgmock-dev libbenchmark-dev librapidcheck-dev
  python3 python3-pip python3-grpcio python3-protobuf
)
# Only for .ci/run.
CHECK_PACKAGES=(clang clang-tidy clang-format)

say() { printf '\033[1m== %s\033[0m\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Runs a long command with its output in a log; shows a dot line while it works and the end of the
# log if it fails. Ctrl-C ends the command, too. usage: quietly "what is being done" command...
quietly() {
  local what=$1 log start=$SECONDS pid status=0
  shift
  log=$(mktemp)
  say "$what"
  "$@" >"$log" 2>&1 &
  pid=$!
  # A background command ignores SIGINT; its children are ended by name of their parent.
  trap 'pkill -TERM -P "$pid" 2>/dev/null; kill "$pid" 2>/dev/null; rm -f "$log"; exit 130' INT TERM
  while kill -0 "$pid" 2>/dev/null; do
    sleep 1
    local seconds=$((SECONDS - start))
    if [ -t 2 ]; then
      printf '\r   %ds  %.100s\033[K' "$seconds" "$(tail -n 1 "$log" | tr -d '\r')" >&2
    elif [ $((seconds % 15)) -eq 14 ]; then
      printf '   %ds  %.100s\n' "$seconds" "$(tail -n 1 "$log" | tr -d '\r')" >&2
    fi
  done
  trap - INT TERM
  [ -t 2 ] && printf '\r\033[K' >&2
  wait "$pid" || status=$?
  [ "$status" -eq 0 ] || tail -n 40 "$log" >&2
  rm -f "$log"
  return "$status"
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "installing packages needs root: run this once as root, or install sudo"
  fi
}

# usage: install_packages NAME...
install_packages() {
  local missing=() name
  for name in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] ||
      missing+=("$name")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  command -v apt-get >/dev/null ||
    die "this set-up knows Debian 12 only; install by hand: ${missing[*]}"
  say "Debian packages to install: ${missing[*]}"
  [ "$(id -u)" -eq 0 ] || ! command -v sudo >/dev/null || sudo -v  # Asks before the output is hidden.
  quietly "updating the package lists" as_root apt-get update -qq ||
    die "no package server is reachable (offline?); still missing: ${missing[*]}"
  quietly "installing ${#missing[@]} packages" \
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
    "${missing[@]}" || die "could not install: ${missing[*]}"
}

# usage: build PRESET TARGET...
build() {
  local preset=$1
  shift
  # Debian's own python3 is the one whose grpc modules the tests use.
  quietly "configuring build/$preset" cmake --preset "$preset" || die "failed: cmake --preset $preset"
  quietly "building build/$preset ($*)" cmake --build --preset "$preset" --target "$@" ||
    die "failed: cmake --build --preset $preset --target $*"
}
