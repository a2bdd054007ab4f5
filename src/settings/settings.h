/* settings.h -- the settings of settings.def: how they are parsed from text and JSON, and
 * how they are written.  The effect of a setting is not here but where its field is read. */
#ifndef PLIM_SETTINGS_H
#define PLIM_SETTINGS_H

#include "base/json.h"

typedef enum plim_setting_id {
#define SETTING(key, KIND, ...) PLIM_SET_##key,
#include "settings/settings.def"
#undef SETTING
    PLIM_SETTING_COUNT
} plim_setting_id;

/* A row of settings.def; the head of that file describes the fields. */
typedef struct plim_setting_row {
    const char *key;
    plim_setting_kind kind;
    const char *arg, *option, *words, *preset, *header, *hidden, *group, *commands, *doc,
        *list, *pairs;
    int64_t least, most;
    bool training, meets;
} plim_setting_row;
extern const plim_setting_row plim_setting_rows[PLIM_SETTING_COUNT];

/* A value as text in its normal form: 24GiB is "25769803776". */
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
    plim_arena own;    /* for settings that the caller made: holds this struct, too */
    plim_arena *arena; /* holds the texts */
    plim_progress progress;
    void *progress_ud;
    plim_setting_text text[PLIM_SETTING_COUNT];
#define SETTING(key, KIND, ...) PLIM_FIELD_##KIND key;
#include "settings/settings.def"
#undef SETTING
};

/* Empty settings, or a copy of `from` if it is not NULL, in `a`; NULL: out of memory. */
plim_settings *plim_settings_in(plim_arena *a, const plim_settings *from);

/* As plim_settings_set, by id. */
plim_status plim_settings_put(plim_settings *s, plim_setting_id id, const char *value,
                              plim_err *err);
/* Gives every setting that is not set its preset. */
plim_status plim_settings_preset(plim_settings *s, plim_err *err);
/* Removes the settings that only training uses. */
plim_status plim_settings_drop_training(plim_settings *s, plim_err *err);

/* Word n of a setting, counted from 1; {NULL, 0}: there is no such word. */
plim_str plim_setting_word(plim_setting_id id, int n);
/* Whether the setting is this one of its words; false if it is not set. */
bool plim_setting_is(const plim_settings *s, plim_setting_id id, const char *word);
/* Writes an object with the settings that the command takes (NULL: with all); a setting that
 * is not set is null. */
void plim_settings_write(plim_jw *w, const plim_settings *s, const char *command);

#endif
