// "Find it for me": the server looks for the blur in the picture, and can be stopped.

import {get, post, remove} from './api.js';
import {$, toast} from './dom.js';
import {app, edit, path, tell} from './store.js';

let busy = false;
export const finding = () => busy;

export async function findBlur() {
  if (busy) return;
  busy = true;
  tell('find');
  const place = path('/estimate'), project = app.project.id;
  const watching = setInterval(async () => {
    try {
      const {stage, share} = await get(place);
      const note = $('finding');
      if (note && stage) note.textContent = `Looking: ${stage}${share ? `, ${Math.round(100 * share)} %` : ''}`;
    } catch { /* not begun, or over */ }
  }, 700);
  try {
    const made = await post(place);
    if (app.project?.id === project) {
      app.project.files[made.id] = {name: made.name};
      edit((sketch) => { sketch.background = null; sketch.regions = []; sketch.file = made.id; });
      for (const warning of made.warnings ?? []) toast(warning, 'note');
    }
  } catch (error) { if (!/ended early/.test(error.message)) toast(error.message); }
  clearInterval(watching);
  busy = false;
  app.kind = null;
  tell('find');
}

export const stopFinding = () => remove(path('/estimate')).catch((error) => toast(error.message));
