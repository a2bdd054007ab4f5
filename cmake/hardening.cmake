# hardening.cmake -- flags that make a mistake in our code harder to use, as far as the compiler,
# the linker and the C library have them: docs/install.md says which.  They go into plim_flags, so
# everything of ours has them; hardening_link is for what links none of our flags.

include(CheckCCompilerFlag)
include(CheckCSourceCompiles)
include(CheckLinkerFlag)
include(CheckPIESupported)

set(hardening_link "")
# A sanitizer checks more, in its own way.
if(NOT PLIM_HARDENING OR sanitize)
    return()
endif()

check_pie_supported(LANGUAGES C) # the link has to say so, too: else a program has a fixed address

# A whole program: what a flag calls has to be in the C library.
function(plim_harden flag)
    string(MAKE_C_IDENTIFIER "PLIM_HAS${flag}" known)
    set(CMAKE_REQUIRED_FLAGS "-Werror ${flag}")
    check_c_source_compiles("#include <string.h>
        int main(int n, char **words) { char copy[64]; strncpy(copy, words[0], 63); return copy[n]; }"
                            ${known})
    if(${known})
        target_compile_options(plim_flags INTERFACE ${flag})
    endif()
endfunction()

plim_harden(-fstack-protector-strong)
plim_harden(-fstack-clash-protection)
if(CMAKE_SYSTEM_NAME STREQUAL "Linux") # which tells the processor to check it
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
        plim_harden(-fcf-protection=full)
    elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
        plim_harden(-mbranch-protection=standard)
    endif()
endif()

# A C library that does not know the level, or has no such checks, does not compile this.
foreach(level 3 2)
    set(CMAKE_REQUIRED_FLAGS "-O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=${level}")
    check_c_source_compiles("#include <stdio.h>
        int level[__USE_FORTIFY_LEVEL >= ${level} ? 1 : -1];
        int main(void) { return level[0]; }" PLIM_HAS_FORTIFY_${level})
    unset(CMAKE_REQUIRED_FLAGS)
    if(PLIM_HAS_FORTIFY_${level})
        # Without optimization there is nothing to check, and glibc warns.
        target_compile_options(plim_flags INTERFACE
                               $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=${level}>)
        break()
    endif()
endforeach()

foreach(word relro now noexecstack)
    check_linker_flag(C LINKER:-z,${word} PLIM_LINKS_${word})
    if(PLIM_LINKS_${word})
        list(APPEND hardening_link LINKER:-z,${word})
    endif()
endforeach()
target_link_options(plim_flags INTERFACE ${hardening_link})
