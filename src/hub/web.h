/* web.h -- small files of a web server, brought into memory by libcurl, which is loaded when the
 * first is asked for: plimsoll can be built and used without it.
 *
 * Whatever the server does, a file ends in an answer or in an error: it takes no more than its
 * limit of memory, and no longer than the time that is allowed. */
#ifndef PLIM_WEB_H
#define PLIM_WEB_H

#include "hub/hub.h"

/* A question. */
typedef struct plim_web_ask {
    const char *url;
    const char *
        token; /* sent to the server of `url` alone, and to none that it redirects to; NULL: none */
    const char *what; /* in messages: "config.json of 'org/name'" */
    uint64_t limit;   /* the most bytes that are taken */
    bool head; /* the first `limit` bytes are all that is wanted; else more is too many */
} plim_web_ask;

/* The answer, in the arena of the connection. */
typedef struct plim_web_answer {
    long status; /* of HTTP: 200, 206, 404 */
    plim_str body;
    bool over;       /* it was over the limit, and is not there */
    plim_str commit; /* X-Repo-Commit; "": none */
    plim_str error;  /* X-Error-Code: "GatedRepo"; "": none */
} plim_web_answer;

typedef struct plim_web plim_web;

/* Begins; one connection at a time, others wait.  PLIM_EIO: there is no libcurl. */
plim_status plim_web_open(plim_web **out, plim_arena *a, const plim_hub_watch *watch,
                          plim_err *err);
/* PLIM_EIO: no answer came, or not all of it: the message is a sentence if the status of HTTP is known, else
 * no more than the reason.  Any status is an answer. */
plim_status plim_web_get(plim_web *w, const plim_web_ask *ask, plim_web_answer *out,
                         plim_err *err);
void plim_web_close(plim_web *w); /* takes NULL */

#endif
