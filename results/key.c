/* Ed25519 keys: strict loading, files that appear whole or not at all, signing. Trust (which key
 * counts) is not decided here.
 *
 * Secrets live in sodium_malloc memory (locked, guarded, kept out of core dumps) and are wiped. The
 * process is not made undumpable: MADV_DONTDUMP on that memory keeps the secret out already, and
 * PR_SET_DUMPABLE would take debuggers and /proc away from the person running the benchmark. */
#include "results/key.h"

#include "results/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sodium.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct secret_key {
    unsigned char sk[crypto_sign_SECRETKEYBYTES]; /* seed || public, libsodium's form */
    struct public_key pub;
};

enum {
    KEY_FILE_MAX_BYTES = 4096,
    SPKI_BYTES = 44,
    PKCS8_BYTES = 48,
};
/* DER of SubjectPublicKeyInfo and of PrivateKeyInfo up to the 32 key bytes (RFC 8410). */
static const unsigned char spki_prefix[12] = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03,
                                              0x2b, 0x65, 0x70, 0x03, 0x21, 0x00};
static const unsigned char pkcs8_prefix[16] = {0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06,
                                               0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20};

static pthread_once_t sodium_once = PTHREAD_ONCE_INIT;
static void sodium_start(void) {
    if (sodium_init() >= 0)
        return;
    fputs("assay: error: libsodium cannot start\n", stderr);
    abort();
}

/* ---- public keys ---- */

int public_key_from_raw(const unsigned char raw[32], struct public_key *k, struct err *e) {
    pthread_once(&sodium_once, sodium_start);
    /* Canonical encoding, on the curve, in the main subgroup, not of small order. OpenSSL 3 takes
     * such keys and then lets them verify signatures over any message. */
    if (!crypto_core_ed25519_is_valid_point(raw))
        return err_set(e, ASSAY_EINPUT,
                       "the public key is not a valid Ed25519 key (small order or not canonical)");
    unsigned char der[SPKI_BYTES], digest[SHA256_BYTES];
    memcpy(der, spki_prefix, sizeof spki_prefix);
    memcpy(der + sizeof spki_prefix, raw, 32);
    sha256(der, sizeof der, digest);
    memcpy(k->raw, raw, 32);
    memcpy(k->keyid, "sha256:", 7);
    hex_encode(digest, sizeof digest, k->keyid + 7);
    return 0;
}

/* Decodes the one PEM block of this label into exactly `want` bytes. Anything around it but white
 * space is an error. */
static int pem_decode(const char *pem, size_t n, const char *name, const char *label,
                      unsigned char *der, size_t want, struct err *e) {
    char begin[64], end[64], text[512];
    snprintf(begin, sizeof begin, "-----BEGIN %s-----", label);
    snprintf(end, sizeof end, "-----END %s-----", label);
    size_t nbegin = strlen(begin), nend = strlen(end), i = 0, chars = 0;
    int rc = 0;
    struct buf b;
    buf_init(&b, want);
    while (i < n && strchr(" \t\r\n", pem[i]) && pem[i])
        i++;
    if (n - i < nbegin || memcmp(pem + i, begin, nbegin) != 0) {
        rc = err_set(e, ASSAY_EINPUT, "%s: expected '%s'%s", name, begin,
                     memmem(pem, n, "ENCRYPTED", 9)              ? ", found an encrypted key"
                     : memmem(pem, n, "BEGIN PRIVATE KEY", 17)   ? ", found a private key"
                     : memmem(pem, n, "BEGIN PUBLIC KEY", 16)    ? ", found a public key"
                                                                 : "");
        goto out;
    }
    for (i += nbegin; i < n && pem[i] != '-'; i++) {
        if (pem[i] == '\n' || pem[i] == '\r')
            continue;
        if (chars == sizeof text) {
            rc = err_set(e, ASSAY_EINPUT, "%s: too long for an Ed25519 key", name);
            goto out;
        }
        text[chars++] = pem[i];
    }
    if (n - i < nend || memcmp(pem + i, end, nend) != 0) {
        rc = err_set(e, ASSAY_EINPUT, "%s: expected '%s'", name, end);
        goto out;
    }
    for (i += nend; i < n; i++) {
        if (!pem[i] || !strchr(" \t\r\n", pem[i])) {
            rc = err_set(e, ASSAY_EINPUT, "%s: unexpected text after '%s'", name, end);
            goto out;
        }
    }
    if (base64_decode(text, chars, &b, e)) {
        rc = err_wrap(e, "%s", name);
        goto out;
    }
    if (b.n != want) {
        rc = err_set(e, ASSAY_EINPUT, "%s: expected an Ed25519 key of %zu bytes, found %zu", name,
                     want, b.n);
        goto out;
    }
    memcpy(der, b.p, want);
out:
    sodium_memzero(text, sizeof text);
    if (b.p)
        sodium_memzero(b.p, b.cap);
    buf_release(&b);
    return rc;
}

/* "ssh-ed25519 BASE64 comment", as in ~/.ssh/id_ed25519.pub: string "ssh-ed25519", string key. */
static int ssh_line_decode(const char *line, size_t n, const char *name, unsigned char raw[32],
                           struct err *e) {
    static const unsigned char prefix[19] = {0,   0,   0,   11,  's', 's', 'h', '-', 'e', 'd',
                                             '2', '5', '5', '1', '9', 0,   0,   0,   32};
    size_t start = strlen("ssh-ed25519 "), chars = 0;
    while (start + chars < n && line[start + chars] && !strchr(" \t\r\n", line[start + chars]))
        chars++;
    struct buf b;
    buf_init(&b, 128);
    int rc = base64_decode(line + start, chars, &b, e);
    if (rc)
        err_wrap(e, "%s", name);
    else if (b.n != sizeof prefix + 32 || memcmp(b.p, prefix, sizeof prefix) != 0)
        rc = err_set(e, ASSAY_EINPUT, "%s: not an ssh-ed25519 public key", name);
    else
        memcpy(raw, b.p + sizeof prefix, 32);
    buf_release(&b);
    return rc;
}

int public_key_from_pem(const char *pem, size_t n, const char *name, struct public_key *k,
                        struct err *e) {
    unsigned char der[SPKI_BYTES];
    int rc;
    if (n > 12 && memcmp(pem, "ssh-ed25519 ", 12) == 0)
        rc = ssh_line_decode(pem, n, name, der + sizeof spki_prefix, e);
    else if (!(rc = pem_decode(pem, n, name, "PUBLIC KEY", der, sizeof der, e)) &&
             memcmp(der, spki_prefix, sizeof spki_prefix) != 0)
        rc = err_set(e, ASSAY_EINPUT, "%s: the public key is not an Ed25519 key", name);
    if (rc)
        return rc;
    if (public_key_from_raw(der + sizeof spki_prefix, k, e))
        return err_wrap(e, "%s", name);
    return 0;
}

int public_key_load(const char *path, struct public_key *k, struct err *e) {
    struct buf b;
    int rc = buf_read_file(&b, path, KEY_FILE_MAX_BYTES, e);
    if (rc)
        return rc;
    rc = public_key_from_pem(b.p, b.n, path, k, e);
    buf_release(&b);
    return rc;
}

/* Both forms fit one base64 line of 64 characters. */
static size_t pem_print(const char *label, const unsigned char *der, size_t n, char *out,
                        size_t room) {
    char line[96];
    sodium_bin2base64(line, sizeof line, der, n, sodium_base64_VARIANT_ORIGINAL);
    int len = snprintf(out, room, "-----BEGIN %s-----\n%s\n-----END %s-----\n", label, line, label);
    sodium_memzero(line, sizeof line);
    return (size_t)len;
}

void public_key_to_pem(const struct public_key *k, char out[160]) {
    unsigned char der[SPKI_BYTES];
    memcpy(der, spki_prefix, sizeof spki_prefix);
    memcpy(der + sizeof spki_prefix, k->raw, 32);
    pem_print("PUBLIC KEY", der, sizeof der, out, 160);
}

/* ---- secret keys ---- */

int secret_key_from_seed(const unsigned char seed[32], struct secret_key **k, struct err *e) {
    pthread_once(&sodium_once, sodium_start);
    *k = NULL;
    struct secret_key *s = sodium_malloc(sizeof *s);
    if (!s)
        return err_set(e, ASSAY_ENOMEM, "cannot get locked memory for a secret key");
    unsigned char pub[32];
    crypto_sign_seed_keypair(pub, s->sk, seed);
    int rc = public_key_from_raw(pub, &s->pub, e);
    if (rc) {
        sodium_free(s);
        return rc;
    }
    sodium_mprotect_readonly(s);
    *k = s;
    return 0;
}

void secret_key_free(struct secret_key *k) {
    sodium_free(k); /* wipes */
}

const struct public_key *secret_key_public(const struct secret_key *k) {
    return &k->pub;
}

/* Reads what the open file holds, refusing one that others could have read or written. */
static int secret_read(int fd, const char *path, struct secret_key **k, struct err *e) {
    struct stat st;
    if (fstat(fd, &st))
        return err_errno(e, ASSAY_EENV, errno, "cannot examine '%s'", path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ASSAY_EENV, "refusing secret key '%s': not a regular file", path);
    if (st.st_uid != geteuid())
        return err_set(e, ASSAY_EENV, "refusing secret key '%s': it belongs to user %u, not %u",
                       path, (unsigned)st.st_uid, (unsigned)geteuid());
    if (st.st_mode & 077)
        return err_set(e, ASSAY_EENV,
                       "refusing secret key '%s': mode %04o lets others at it; run chmod 600", path,
                       (unsigned)(st.st_mode & 07777));
    char text[KEY_FILE_MAX_BYTES];
    unsigned char der[PKCS8_BYTES];
    size_t n = 0;
    ssize_t got = 1;
    while (n < sizeof text && (got = read(fd, text + n, sizeof text - n)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            break;
        n += (size_t)got;
    }
    int rc;
    if (got < 0)
        rc = err_errno(e, ASSAY_EENV, errno, "cannot read '%s'", path);
    else if (n == sizeof text)
        rc = err_set(e, ASSAY_EINPUT, "%s: too long for a secret key", path);
    else
        rc = pem_decode(text, n, path, "PRIVATE KEY", der, sizeof der, e);
    if (!rc && memcmp(der, pkcs8_prefix, sizeof pkcs8_prefix) != 0)
        rc = err_set(e, ASSAY_EINPUT, "%s: the secret key is not an Ed25519 key", path);
    if (!rc)
        rc = secret_key_from_seed(der + sizeof pkcs8_prefix, k, e);
    sodium_memzero(text, sizeof text);
    sodium_memzero(der, sizeof der);
    return rc;
}

/* *absent is set instead of an error when there is no such file. */
static int secret_load(const char *path, struct secret_key **k, bool *absent, struct err *e) {
    pthread_once(&sodium_once, sodium_start);
    *k = NULL;
    *absent = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) {
        *absent = true;
        return 0;
    }
    if (fd < 0)
        return err_errno(e, ASSAY_EENV, errno, "cannot open secret key '%s'", path);
    int rc = secret_read(fd, path, k, e);
    close(fd);
    return rc;
}

int secret_key_load(const char *path, struct secret_key **k, struct err *e) {
    bool absent;
    int rc = secret_load(path, k, &absent, e);
    if (!rc && absent)
        return err_errno(e, ASSAY_EENV, ENOENT, "cannot open secret key '%s'", path);
    return rc;
}

static int write_all(int fd, const char *p, size_t n) {
    while (n) {
        ssize_t w = write(fd, p, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return -1;
        p += w;
        n -= (size_t)w;
    }
    return 0;
}

static void sync_directory_of(const char *path) {
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path + 1) : 1, slash ? path : ".");
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd); /* best effort: some file systems refuse it on directories */
    close(fd);
}

/* The file appears with its whole content or not at all, and never replaces another: a temporary
 * file in the same directory, fsync, link(2) (which fails if the name exists), fsync of the
 * directory. *exists is set instead of an error when there is such a file already. */
static int write_new(const char *path, mode_t mode, const char *text, size_t n, bool *exists,
                     struct err *e) {
    *exists = false;
    char temp[PATH_MAX];
    int len = snprintf(temp, sizeof temp, "%s.XXXXXX", path);
    if (len < 0 || (size_t)len >= sizeof temp)
        return err_set(e, ASSAY_EUSAGE, "path too long: '%.100s…'", path);
    int fd = mkostemp(temp, O_CLOEXEC); /* mode 0600 whatever the umask */
    if (fd < 0)
        return err_errno(e, ASSAY_EENV, errno, "cannot create '%s'", temp);
    int rc = 0;
    if (fchmod(fd, mode) || write_all(fd, text, n) || fsync(fd))
        rc = err_errno(e, ASSAY_EENV, errno, "cannot write '%s'", temp);
    if (close(fd) && !rc)
        rc = err_errno(e, ASSAY_EENV, errno, "cannot write '%s'", temp);
    bool moved = false;
    if (!rc && link(temp, path)) {
        if (errno == EEXIST)
            *exists = true;
        else if (renameat2(AT_FDCWD, temp, AT_FDCWD, path, RENAME_NOREPLACE) == 0)
            moved = true; /* a file system without hard links */
        else if (errno == EEXIST)
            *exists = true;
        else
            rc = err_errno(e, ASSAY_EENV, errno, "cannot create '%s'", path);
    }
    if (!moved)
        unlink(temp);
    if (!rc && !*exists)
        sync_directory_of(path);
    return rc;
}

/* *exists is set instead of an error when path is there already. */
static int secret_create(const char *path, struct secret_key **k, bool *exists, struct err *e) {
    pthread_once(&sodium_once, sodium_start);
    *k = NULL;
    *exists = false;
    struct secret_key *s = NULL;
    char pub_path[PATH_MAX], text[256], pem[160];
    unsigned char der[PKCS8_BYTES];
    int len = snprintf(pub_path, sizeof pub_path, "%s.pub", path);
    if (len < 0 || (size_t)len >= sizeof pub_path)
        return err_set(e, ASSAY_EUSAGE, "path too long: '%.100s…'", path);
    if (access(pub_path, F_OK) == 0) {
        /* The secret key's file is always made first, so this order of questions races with nobody.
         */
        if (access(path, F_OK) == 0) {
            *exists = true;
            return 0;
        }
        return err_set(
            e, ASSAY_EENV,
            "cannot create key '%s': '%s' belongs to a key that is not there; move it away", path,
            pub_path);
    }
    memcpy(der, pkcs8_prefix, sizeof pkcs8_prefix);
    randombytes_buf(der + sizeof pkcs8_prefix, 32);
    int rc = secret_key_from_seed(der + sizeof pkcs8_prefix, &s, e);
    if (rc)
        goto out;
    size_t n = pem_print("PRIVATE KEY", der, sizeof der, text, sizeof text);
    rc = write_new(path, 0600, text, n, exists, e);
    if (rc || *exists)
        goto out;
    bool pub_exists;
    public_key_to_pem(&s->pub, pem);
    rc = write_new(pub_path, 0644, pem, strlen(pem), &pub_exists, e);
    if (!rc && pub_exists)
        rc = err_set(e, ASSAY_EENV, "cannot create '%s': it appeared meanwhile", pub_path);
    if (rc)
        goto out;
    *k = s;
    s = NULL;
out:
    sodium_memzero(der, sizeof der);
    sodium_memzero(text, sizeof text);
    secret_key_free(s);
    return rc;
}

int secret_key_create(const char *path, struct secret_key **k, struct err *e) {
    bool exists;
    int rc = secret_create(path, k, &exists, e);
    if (!rc && exists)
        return err_set(e, ASSAY_EUSAGE, "cannot create key '%s': the file exists", path);
    return rc;
}

/* ---- the runner's key ---- */

/* Makes the directories of path, private to the user. */
static int make_directories(const char *path, struct err *e) {
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s", path);
    for (char *p = dir + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        if (mkdir(dir, 0700) && errno != EEXIST)
            return err_errno(e, ASSAY_EENV, errno, "cannot create directory '%s'", dir);
        *p = '/';
    }
    return 0;
}

static int runner_path(char *path, size_t room, struct err *e) {
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    int n;
    if (data && data[0] == '/') /* the XDG specification has relative paths ignored */
        n = snprintf(path, room, "%s/assay/keys/runner.pem", data);
    else if (home && home[0] == '/')
        n = snprintf(path, room, "%s/.local/share/assay/keys/runner.pem", home);
    else
        return err_set(e, ASSAY_EENV,
                       "no place for the runner key: neither XDG_DATA_HOME nor HOME "
                       "is an absolute path");
    if (n < 0 || (size_t)n >= room)
        return err_set(e, ASSAY_EENV, "the path of the runner key is too long");
    return 0;
}

int runner_key_load(const char *path_or_null, struct secret_key **k, bool *created, char *path,
                    size_t path_bytes, struct err *e) {
    *k = NULL;
    *created = false;
    int rc;
    if (path_or_null) { /* named by the user: it must be there */
        if ((size_t)snprintf(path, path_bytes, "%s", path_or_null) >= path_bytes)
            return err_set(e, ASSAY_EUSAGE, "path too long: '%.100s…'", path_or_null);
        return secret_key_load(path, k, e);
    }
    if ((rc = runner_path(path, path_bytes, e)))
        return rc;
    bool absent, exists;
    rc = secret_load(path, k, &absent, e);
    if (rc || !absent)
        return rc;
    if ((rc = make_directories(path, e)) || (rc = secret_create(path, k, &exists, e)))
        return rc;
    if (!exists) {
        *created = true;
        return 0;
    }
    return secret_key_load(path, k, e); /* another process was first */
}

/* ---- signatures ---- */

void key_sign(const struct secret_key *k, const void *msg, size_t n, unsigned char sig[64]) {
    crypto_sign_detached(sig, NULL, msg, n, k->sk);
}

bool key_verify(const struct public_key *k, const void *msg, size_t n,
                const unsigned char sig[64]) {
    pthread_once(&sodium_once, sodium_start);
    return crypto_sign_verify_detached(sig, msg, n, k->raw) == 0;
}
