package dashboard

// object is a JSON object of Grafana. encoding/json sorts its keys.
type object = map[string]any

const (
	schemaVersion = 39 // Grafana 10
	columns       = 24 // of Grafana's grid
	rowHeight     = 1
	panelHeight   = 8
	numberHeight  = 4
	panelWidth    = 8
	numberWidth   = 4
)

func datasource() object { return object{"type": "prometheus", "uid": "${datasource}"} }

func (d *Dashboard) model() object {
	return object{
		"uid": "portolan-" + d.Name, "title": "Portolan / " + d.Title, "description": d.Description,
		"tags": []string{"portolan"}, "schemaVersion": schemaVersion, "version": 1, "editable": true,
		"graphTooltip": 1, "refresh": "30s", "timezone": "", "fiscalYearStartMonth": 0,
		"time":        object{"from": "now-1h", "to": "now"},
		"annotations": object{"list": []object{}}, "templating": object{"list": d.variables()},
		"links": []object{{
			"type": "dashboards", "title": "Portolan", "tags": []string{"portolan"}, "asDropdown": true,
			"includeVars": false, "keepTime": true, "targetBlank": false, "icon": "external link",
		}},
		"panels": d.panels(),
	}
}

// variables are the data source, the jobs and the instances.
func (d *Dashboard) variables() []object {
	all := []object{{
		"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus", "hide": 0,
		"refresh": 1, "regex": "", "multi": false, "includeAll": false, "options": []object{}, "current": object{},
	}}
	for _, v := range []struct{ name, label, query string }{
		{"job", "Job", "label_values(" + d.Metric + ", job)"},
		{"instance", "Instance", "label_values(" + d.Metric + `{job=~"$job"}, instance)`},
	} {
		all = append(all, object{
			"type": "query", "name": v.name, "label": v.label, "datasource": datasource(), "definition": v.query,
			"query": object{"query": v.query, "refId": "A", "qryType": 1}, "refresh": 2, "sort": 1, "hide": 0, "regex": "",
			"multi": true, "includeAll": true, "allValue": ".+", "options": []object{},
			"current": object{"selected": true, "text": []string{"All"}, "value": []string{"$__all"}},
		})
	}
	return all
}

// panels places the panels of all rows on the grid.
func (d *Dashboard) panels() (all []object) {
	id, y := 0, 0
	place := func(panel object, x, width, height int) {
		id++
		panel["id"], panel["gridPos"] = id, object{"x": x, "y": y, "w": width, "h": height}
		all = append(all, panel)
	}
	for _, row := range d.Rows {
		place(object{"type": "row", "title": row.Title, "collapsed": false, "panels": []object{}}, 0, columns, rowHeight)
		y += rowHeight
		x, tallest := 0, 0
		for _, p := range row.Panels {
			width, height := p.size()
			if x+width > columns {
				x, y, tallest = 0, y+tallest, 0
			}
			place(p.model(), x, width, height)
			x, tallest = x+width, max(tallest, height)
		}
		y += tallest
	}
	return all
}

func (p *Panel) size() (width, height int) {
	if p.Kind == Number {
		return numberWidth, numberHeight
	}
	return panelWidth, panelHeight
}

func (p *Panel) model() object {
	m := object{
		"type": p.Kind, "title": p.Title, "description": p.description(), "datasource": datasource(),
		"fieldConfig": object{"defaults": p.defaults(), "overrides": []object{}},
		"options":     p.options(), "targets": p.targets(),
	}
	if p.Kind == Table {
		m["transformations"] = []object{{
			"id": "organize", "options": object{"excludeByName": object{"Time": true}, "indexByName": object{}},
		}}
	}
	return m
}

func (p *Panel) description() string {
	if p.Event == "" {
		return p.Description
	}
	return p.Description + " No data until " + p.Event + "."
}

func (p *Panel) defaults() object {
	d := object{"unit": p.Unit, "min": 0, "thresholds": p.thresholds(), "color": object{"mode": "palette-classic"}}
	switch p.Kind {
	case Graph:
		style := "off"
		if p.Warn+p.Alarm > 0 {
			style = "line"
		}
		d["custom"] = object{
			"drawStyle": "line", "fillOpacity": 8, "lineWidth": 1, "showPoints": "never", "spanNulls": false,
			"thresholdsStyle": object{"mode": style},
		}
	case Number, Table:
		d["color"] = object{"mode": "thresholds"}
	}
	if p.Unit == Ago {
		delete(d, "min")
	}
	return d
}

// thresholds are in rising order, as Grafana wants them: the first has no value.
func (p *Panel) thresholds() object {
	const good, warn, alarm = "green", "orange", "red"
	steps := []object{{"color": good, "value": nil}}
	if p.Low {
		steps = []object{{"color": good, "value": nil}}
		if p.Warn > 0 {
			steps = []object{{"color": warn, "value": nil}, {"color": good, "value": p.Warn}}
		}
		if p.Alarm > 0 {
			steps[0] = object{"color": alarm, "value": nil}
			if p.Warn > 0 {
				steps = []object{steps[0], {"color": warn, "value": p.Alarm}, {"color": good, "value": p.Warn}}
			} else {
				steps = append(steps, object{"color": good, "value": p.Alarm})
			}
		}
		return object{"mode": "absolute", "steps": steps}
	}
	if p.Warn > 0 {
		steps = append(steps, object{"color": warn, "value": p.Warn})
	}
	if p.Alarm > 0 {
		steps = append(steps, object{"color": alarm, "value": p.Alarm})
	}
	return object{"mode": "absolute", "steps": steps}
}

func (p *Panel) options() object {
	switch p.Kind {
	case Number:
		return object{
			"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
			"colorMode":     "value", "graphMode": "area", "textMode": "auto", "justifyMode": "auto", "orientation": "auto",
		}
	case Table:
		return object{"showHeader": true, "cellHeight": "sm", "footer": object{"show": false}}
	case Graph:
	}
	return object{
		"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": []string{}},
		"tooltip": object{"mode": "multi", "sort": "desc"},
	}
}

func (p *Panel) targets() (all []object) {
	for i, q := range p.Queries {
		t := object{
			"refId": string(rune('A' + i)), "datasource": datasource(), "expr": q.PromQL(), "legendFormat": q.Legend,
			"editorMode": "code", "range": true, "instant": false,
		}
		if p.Kind == Table {
			t["format"], t["instant"], t["range"] = "table", true, false
		}
		all = append(all, t)
	}
	return all
}
