/* hub.h -- models of the Hugging Face hub: their ids, where this machine has them, and how the
 * few files that an answer needs are fetched.  Weights are neither fetched nor read. */
#ifndef PLIM_HUB_H
#define PLIM_HUB_H

#include "base/base.h"

/* "org/name" or "org/name@revision"; the parts are borrowed. */
typedef struct plim_hub_id {
    plim_str owner, model;
    plim_str revision; /* a branch, a tag or a commit: "main", unless one was typed */
} plim_hub_id;

/* Reads what could be an id of the hub: letters, digits and "._-" around one '/'.  Without a
 * revision a name with the suffix of a file ("runs/net.onnx") is none. */
bool plim_hub_parse(plim_str text, plim_hub_id *out);

/* Where a cache of this machine has a model; snapshot.p NULL: none has. */
typedef struct plim_hub_place {
    plim_str ref;      /* the file that names the commit of the revision; p NULL: it is one */
    plim_str snapshot; /* the folder with its files */
    plim_str origin;   /* "org/name@commit, from the cache of huggingface_hub" */
    bool whole;        /* it has a configuration; else weights at best */
} plim_hub_place;

/* Looks into the cache of huggingface_hub, then into plimsoll's own, for one that is whole;
 * else for any.  All is in `a`. */
plim_status plim_hub_find(plim_arena *a, const plim_hub_id *id, plim_hub_place *out,
                          plim_err *err);

/* PLIM_EUSAGE: says what to do about an id that no cache has.  `why` is what kept it from
 * being fetched, as in "'--offline' forbids to fetch it"; NULL: nothing was tried. */
plim_status plim_hub_missing(const plim_hub_id *id, const char *why, plim_err *err);

/* Whether the environment forbids the network, as it does for huggingface_hub. */
bool plim_hub_is_offline(void);

/* The folder in which plimsoll keeps what it has fetched from the hub that HF_ENDPOINT names; "": this
 * user has no home folder.  {NULL, 0}: no memory. */
plim_str plim_hub_own_cache(plim_arena *a);
/* The folder of a model in a cache; {NULL, 0}: no memory. */
plim_str plim_hub_folder(plim_arena *a, plim_str cache, const plim_hub_id *id);
/* Whether it may name a snapshot: a commit, in one word. */
bool plim_hub_is_commit(plim_str s);
/* The hub's address: HF_ENDPOINT without a slash at the end, or https://huggingface.co; and
 * without "https://", as messages have it. */
plim_str plim_hub_endpoint(void);
plim_str plim_hub_host(void);

/* Reports what is fetched ("config.json of org/name"), again and again while it is waited for;
 * progress may be NULL. */
typedef struct plim_hub_watch {
    plim_progress progress;
    void *ud;
} plim_hub_watch;

/* Fetches the configuration of a model, and what it says about its weights, into plimsoll's own
 * cache, where plim_hub_find then has it.  PLIM_EUSAGE: there is no such model.
 * PLIM_EUNSUPPORTED: it has no configuration.  PLIM_EFORMAT: what the hub sent is not one.  PLIM_EIO: there is no network,
 * no libcurl, no permission, or the cache cannot be written.  PLIM_ECANCELED: by `progress`. */
plim_status plim_hub_fetch(const plim_hub_id *id, const plim_hub_watch *watch, plim_err *err);

#endif
