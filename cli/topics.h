/* topics.h -- what 'plimsoll help TOPIC' explains.  A topic is a row of the table in topics.c. */
#ifndef PLIM_TOPICS_H
#define PLIM_TOPICS_H

#include <stddef.h>

typedef struct plim_topic {
    const char *name; /* none of a command */
    const char *doc;  /* one line, for shells */
    const char *text; /* lines of at most 80 columns */
} plim_topic;

const plim_topic *plim_topic_at(size_t i);           /* NULL: past the end */
const plim_topic *plim_topic_find(const char *name); /* NULL: unknown */

#endif
