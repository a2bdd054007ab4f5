# manual.cmake -- the manual pages and the completion scripts, which the program writes itself
# (cli/manual.c, cli/cmd_completion.c); docs/man/plimsoll.1.in has the text of plimsoll(1).

if(NOT CMAKE_SCRIPT_MODE_FILE)
    # Where the program cannot run, another of the same version has to do.
    set(PLIM_PROGRAM "" CACHE FILEPATH "a plimsoll that runs here; needed when cross-compiling")
    set(program $<TARGET_FILE:plimsoll>)
    if(PLIM_PROGRAM)
        set(program ${PLIM_PROGRAM})
    elseif(CMAKE_CROSSCOMPILING)
        message(WARNING "no manual and no completion scripts: PLIM_PROGRAM is not set")
        return()
    endif()
    set(manual ${CMAKE_BINARY_DIR}/manual)
    set(page ${CMAKE_SOURCE_DIR}/docs/man/plimsoll.1.in)
    add_custom_command(OUTPUT ${manual}/made DEPENDS plimsoll ${page} ${CMAKE_CURRENT_LIST_FILE}
                       COMMAND ${CMAKE_COMMAND} -D PROGRAM=${program} -D PAGE=${page}
                               -D OUT=${manual} -P ${CMAKE_CURRENT_LIST_FILE})
    add_custom_target(manual ALL DEPENDS ${manual}/made)
    install(DIRECTORY ${manual}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
    install(FILES ${manual}/plimsoll.bash RENAME plimsoll
            DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES ${manual}/plimsoll.zsh RENAME _plimsoll
            DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
    install(FILES ${manual}/plimsoll.fish
            DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
    return()
endif()

# ---- cmake -D PROGRAM=... -D PAGE=... -D OUT=... -P manual.cmake ------------------------------

function(ask out)
    execute_process(COMMAND ${PROGRAM} ${ARGN} OUTPUT_VARIABLE text RESULT_VARIABLE failed)
    if(failed)
        message(FATAL_ERROR "${PROGRAM} ${ARGN}: ${failed}")
    endif()
    set(${out} "${text}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${OUT})
file(READ ${PAGE} text)
string(REGEX MATCH "^\\.Dd [^\n]*" date "${text}")
ask(commands help --man)
string(REPLACE "@COMMANDS@\n" "${commands}" text "${text}")
file(WRITE ${OUT}/man1/plimsoll.1 "${text}")

# The program does not know the date of the manual, which is that of its first page.
string(REGEX MATCHALL "Xr plimsoll-[a-z]+" names "${commands}")
foreach(name ${names})
    string(REPLACE "Xr plimsoll-" "" name ${name})
    ask(text help --man ${name})
    string(REGEX REPLACE "^\\.Dd" "${date}" text "${text}")
    file(WRITE ${OUT}/man1/plimsoll-${name}.1 "${text}")
endforeach()
foreach(shell bash zsh fish)
    ask(text completion ${shell})
    file(WRITE ${OUT}/plimsoll.${shell} "${text}")
endforeach()
file(TOUCH ${OUT}/made)
