/**
 * @file cache.h
 * What measured this machine, kept for its user. Internal to study/.
 */
#ifndef TY_STUDY_CACHE_H
#define TY_STUDY_CACHE_H

#include "ty_core.h"

/**
 * One file of the user's cache ($XDG_CACHE_HOME/trainyard, ~/.cache/trainyard), in a folder that is
 * theirs: not a link, not another's, not open to all. Where there is none, TY_EIO says why.
 */
typedef struct ty_cache ty_cache;
ty_status ty_cache_open(const char *name, ty_cache **out, ty_error *error) TY_MUST_CHECK;
void ty_cache_close(ty_cache *cache);
/** Letters, digits, dots, hyphens and underscores of a word, for a file's name. */
void ty_cache_word(const char *word, char *out, size_t room);
/** The file's path, for people. */
const char *ty_cache_shown(const ty_cache *cache);
/** @param out [out] NULL where nothing is kept that can be read; TY_EIO: it must not be read */
ty_status ty_cache_load(const ty_cache *cache, ty_profile **out, ty_error *error) TY_MUST_CHECK;
ty_status ty_cache_keep(const ty_cache *cache, const ty_profile *profile,
                        ty_error *error) TY_MUST_CHECK;

#endif
