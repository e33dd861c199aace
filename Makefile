# assay: one Makefile, no recursion. `make help` lists the targets.
# A second tree: make B=build-asan SAN=-fsanitize=address,undefined
.DELETE_ON_ERROR:
.SUFFIXES:

B ?= build
SAN ?=
PREFIX ?= /usr/local
WERROR ?=
VERSION := $(shell git describe --always --dirty --tags 2>/dev/null || echo unknown)
GIT_COMMIT := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)

PKGS := jansson sqlite3 libsodium libcrypto libcurl libmicrohttpd hwloc libpcre2-8 libutf8proc
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS))
PKG_LIBS := $(shell pkg-config --libs $(PKGS))
CRITERION_LIBS := $(shell pkg-config --libs criterion 2>/dev/null)

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wstrict-prototypes \
        -Wmissing-prototypes -Wcast-qual -Wformat=2 -Wundef -Wvla -Wwrite-strings -Wdouble-promotion -Wno-missing-field-initializers
FORTIFY := $(if $(SAN),,-D_FORTIFY_SOURCE=3 -fstack-protector-strong)
CFLAGS ?= $(if $(SAN),-O1,-O2) -g
override CPPFLAGS += -D_GNU_SOURCE -I. $(PKG_CFLAGS)
override CFLAGS += -std=c17 $(WARN) $(WERROR) -ffp-contract=off -fno-omit-frame-pointer -fPIE $(FORTIFY) $(SAN)
override LDFLAGS += -pie -Wl,-z,relro,-z,now $(SAN)
LIBS := $(PKG_LIBS) -lm -lpthread

SRC := $(filter-out harness/cli/main.c,$(wildcard harness/*/*.c workloads/*.c workloads/*/*.c backends/*.c backends/*/*.c results/*.c results/*/*.c))
OBJ := $(SRC:%.c=$(B)/%.o)
EMBED := $(sort $(wildcard workloads/library/*.json workloads/models/*.json backends/tpu_sim/chips/*.json schemas/*.json schemas/rules/*.json schemas/sql/*.sql))
TEST_SRC := $(wildcard tests/core/*.c tests/measure/*.c tests/workloads/*.c tests/backends/*.c tests/results/*.c tests/run/*.c tests/cli/*.c)
TEST_OBJ := $(TEST_SRC:%.c=$(B)/%.o)
# plain programs (threads, fuzz replay): Criterion cannot run under ThreadSanitizer
PLAIN := $(patsubst %.c,$(B)/%,$(wildcard tests/threads/*.c))
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ_REPLAY := $(FUZZ_SRC:tests/fuzz/%.c=$(B)/fuzz/%)
# what only one benchmark is made of: tests/bench/X/*.c
BENCH_HTTP_OBJ := $(patsubst %.c,$(B)/%.o,$(wildcard tests/bench/http/*.c))
BENCH := $(patsubst %.c,$(B)/%,$(wildcard tests/bench/*.c))
HEADERS := $(wildcard harness/*/*.h workloads/*.h workloads/*/*.h backends/*.h backends/*/*.h results/*.h results/*/*.h)

.PHONY: all
all: $(B)/assay ## build build/assay

$(B)/assay: $(B)/harness/cli/main.o $(B)/libassay.a
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

$(B)/libassay.a: $(OBJ) $(B)/embed.o
	@rm -f $@
	$(AR) rcs $@ $^

$(B)/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(B)/harness/core/version.o: override CPPFLAGS += -DASSAY_VERSION='"$(VERSION)"' -DASSAY_GIT_COMMIT='"$(GIT_COMMIT)"'
$(B)/harness/core/version.o: $(B)/version.stamp
$(B)/version.stamp: FORCE
	@mkdir -p $(B); echo '$(VERSION) $(GIT_COMMIT)' | cmp -s - $@ || echo '$(VERSION) $(GIT_COMMIT)' > $@
.PHONY: FORCE
FORCE:

$(B)/embed.S: scripts/embed.sh $(EMBED) $(B)/embed.list
	@mkdir -p $(B)
	scripts/embed.sh $(EMBED) > $@
$(B)/embed.list: FORCE
	@mkdir -p $(B); echo '$(EMBED)' | cmp -s - $@ || echo '$(EMBED)' > $@
$(B)/embed.o: $(B)/embed.S $(EMBED)
	$(CC) -c -o $@ $<

# Criterion's new assertions warn under -Wconversion
$(B)/tests/%.o: override CFLAGS += -Wno-conversion -Wno-sign-conversion -Wno-missing-prototypes -Wno-pedantic -Wno-shadow -Wno-cast-qual $(if $(findstring clang,$(CC)),-Wno-incompatible-pointer-types-discards-qualifiers,-Wno-discarded-qualifiers)
$(B)/assay-tests: $(TEST_OBJ) $(B)/libassay.a
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(CRITERION_LIBS) $(LIBS)
$(B)/tests/bench/bench_http: $(BENCH_HTTP_OBJ)
$(PLAIN) $(BENCH): $(B)/%: $(B)/%.o $(B)/libassay.a
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LIBS)

F ?= *
.PHONY: test
test: $(B)/assay-tests $(B)/assay $(PLAIN) $(FUZZ_REPLAY) ## run the test suite (F='results/*' filters)
	B=$(B) scripts/run-tests '$(F)'

.PHONY: bench
bench: $(B)/assay $(BENCH) ## benchmarks, as ratios taken in the same run
	B=$(B) scripts/bench

SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined
.PHONY: asan
asan: ## the suite under AddressSanitizer and UBSan
	$(MAKE) B=build-asan SAN='$(SANITIZE)' test

.PHONY: tsan
tsan: ## the threaded programs under ThreadSanitizer (Criterion cannot run there)
	$(MAKE) B=build-tsan SAN=-fsanitize=thread plain
	B=build-tsan scripts/run-plain

.PHONY: plain
plain: $(PLAIN)

# Each fuzz target is one function. Here it is linked with a main that replays files; `make fuzz`
# links the same function with libFuzzer.
$(FUZZ_REPLAY): $(B)/fuzz/%: $(B)/tests/fuzz/%.o $(B)/tests/fuzz/replay.o $(B)/libassay.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)
.PHONY: replay
replay: $(FUZZ_REPLAY) ## replay the fuzz corpora
	B=$(B) scripts/replay-corpora

FUZZ_S ?= 60
.PHONY: fuzz
fuzz: ## fuzz each parser for FUZZ_S seconds (clang, libFuzzer)
	$(MAKE) B=build-fuzz CC=clang SAN='-fsanitize=fuzzer-no-link,address,undefined' build-fuzz/libassay.a
	FUZZ_S=$(FUZZ_S) scripts/fuzz $(FUZZ_SRC)

.PHONY: cover
cover: ## coverage of the suite (gcovr)
	$(MAKE) B=build-cov SAN=--coverage test
	gcovr -r . --object-directory build-cov -e tests/ --sort-percentage

.PHONY: lint
lint: ## banned calls, climbing includes, formatting of the rooms, clang-tidy when asked (TIDY=1)
	scripts/lint

.PHONY: headers
headers: ## each header compiles alone
	@for h in $(HEADERS); do $(CC) $(CPPFLAGS) $(CFLAGS) -Wno-pedantic -fsyntax-only -x c $$h || exit 1; done; echo "headers: $(words $(HEADERS)) compile alone"

.PHONY: install uninstall
install: all ## install to DESTDIR/PREFIX with man page and completion
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	install -m 755 $(B)/assay $(DESTDIR)$(PREFIX)/bin/assay
	$(B)/assay help --man > $(DESTDIR)$(PREFIX)/share/man/man1/assay.1
	$(B)/assay help --completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/assay
uninstall: ## remove what install put there
	rm -f $(DESTDIR)$(PREFIX)/bin/assay $(DESTDIR)$(PREFIX)/share/man/man1/assay.1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions/assay

.PHONY: clean
clean: ## remove the build trees
	rm -rf build build-*

.PHONY: help
help: ## this list
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1|\2/' | column -t -s '|'

-include $(OBJ:.o=.d) $(B)/harness/cli/main.d $(TEST_OBJ:.o=.d) $(PLAIN:=.d) $(BENCH:=.d) $(BENCH_HTTP_OBJ:.o=.d) $(FUZZ_SRC:%.c=$(B)/%.d)
