/* settings.h -- settings by name, as settings.def has them: how they are read from text and
 * JSON, and how they are written.  What a setting does is not here: whoever runs a model
 * reads the field. */
#ifndef PLIM_SETTINGS_H
#define PLIM_SETTINGS_H

#include "base/json.h"

typedef enum plim_setting_id {
#define SETTING(key, KIND, ...) PLIM_SET_##key,
#include "settings/settings.def"
#undef SETTING
    PLIM_SETTING_COUNT
} plim_setting_id;

/* A row of settings.def, which describes its fields. */
typedef struct plim_setting_row {
    const char *key;
    plim_setting_kind kind;
    const char *arg, *option, *words, *preset, *header, *hidden, *group, *commands, *doc;
    int64_t least, most;
    bool training;
} plim_setting_row;
extern const plim_setting_row plim_setting_rows[PLIM_SETTING_COUNT];

/* The value as it was given, in its normal form: 24GiB is "25769803776". */
typedef struct plim_setting_text {
    char *p; /* NULL: not given */
    size_t room;
} plim_setting_text;

#define PLIM_FIELD_FLAG bool
#define PLIM_FIELD_INT int64_t
#define PLIM_FIELD_SIZE uint64_t
#define PLIM_FIELD_FRACTION double
#define PLIM_FIELD_WORD int
#define PLIM_FIELD_TEXT const char *
#define PLIM_FIELD_LIST const char *
struct plim_settings {
    plim_arena own;    /* of settings that the caller made; they stand in it themselves */
    plim_arena *arena; /* where text lives */
    plim_progress progress;
    void *progress_ud;
    plim_setting_text text[PLIM_SETTING_COUNT];
#define SETTING(key, KIND, ...) PLIM_FIELD_##KIND key;
#include "settings/settings.def"
#undef SETTING
};

/* Empty settings, or (from not NULL) a copy, that live in `a`; NULL: no memory. */
plim_settings *plim_settings_in(plim_arena *a, const plim_settings *from);

/* As plim_settings_set. */
plim_status plim_settings_put(plim_settings *s, plim_setting_id id, const char *value,
                              plim_err *err);
/* Gives every setting that is not given its preset. */
plim_status plim_settings_preset(plim_settings *s, plim_err *err);
/* An inference forgets what only training uses. */
plim_status plim_settings_drop_training(plim_settings *s, plim_err *err);

/* The n-th of a setting's words, from 1; {NULL, 0} past the last. */
plim_str plim_setting_word(plim_setting_id id, int n);
/* Does this command ("estimate") take it? */
bool plim_setting_of(const plim_setting_row *row, const char *command);
/* An object of those that the command takes; not given: null. */
void plim_settings_write(plim_jw *w, const plim_settings *s, const char *command);

#endif
