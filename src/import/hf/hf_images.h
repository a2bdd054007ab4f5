/* hf_images.h -- the images that a model of text and images is called with. */
#ifndef PLIM_HF_IMAGES_H
#define PLIM_HF_IMAGES_H

#include "families/family.h"
#include "import/hf/hf_parts.h"

/* Images of bind->images; or of the shape of their pixels, if the model does not read tokens, too. */
void plim_hf_images(plim_hf *h, plim_family_model *m, plim_family_call *call);
/* Whether they take more tokens than a sequence has, and nobody asked for them, or for this length: it has none then.  If
 * somebody did, that is PLIM_EUSAGE. */
bool plim_hf_crowded(plim_hf *h, const plim_family_call *call);
/* What was assumed about them; "": nothing. */
plim_str plim_hf_images_note(const plim_hf *h, plim_family_model *m,
                             const plim_family_call *call);

#endif
