/* What a family of chat templates is made of. */
#ifndef WORKLOADS_TOKENIZER_CHAT_INTERNAL_H
#define WORKLOADS_TOKENIZER_CHAT_INTERNAL_H

#include "workloads/tokenizer/chat_template.h"

enum { CHAT_DIGESTS_MAX = 3, CHAT_MARKS_MAX = 6 };

enum chat_rule {
    CHAT_TRIM = 1 << 0,            /* white space around each message's text is dropped */
    CHAT_ALTERNATE = 1 << 1,       /* user and assistant must take turns, the user first */
    CHAT_SYSTEM_IN_USER = 1 << 2,  /* the system's text opens the first user message's */
    CHAT_SYSTEM_TRIMMED = 1 << 3,  /* … before both are trimmed together */
    CHAT_SYSTEM_GATHERED = 1 << 4, /* all system messages come first, an empty line between them */
    CHAT_SYSTEM_UNLESS_EMPTY = 1 << 5, /* an empty system message is none */
    CHAT_THOUGHT_DROPPED = 1 << 6,     /* of an assistant's text only what follows </think> */
    CHAT_THOUGHT_LAST = 1 << 7, /* … but after the last question it stays, in a form of its own */
};

struct chat_template {
    const char *name;
    const char *digests[CHAT_DIGESTS_MAX]; /* sha256 of the source less white space at its end */
    const char *marks[CHAT_MARKS_MAX];     /* or all of these are in the source */
    const char *start;                     /* of every text; "{date}" stands for the date */
    const char *system_open,
        *system_close;          /* around the first message, if the system's; NULL: refused */
    const char *system_default; /* text in its place when there is none; NULL: nothing then */
    const char
        *later_open; /* of system messages further down, closed as the first; NULL: refused */
    const char *user_open, *user_close;
    const char *assistant_open, *assistant_close;
    const char *assistant_end; /* closes an answer that ends the text; NULL: as the others */
    const char *generation;
    unsigned rules; /* enum chat_rule */
};

extern const struct chat_template chat_families[];
extern const size_t chat_nfamilies;

#endif
